use super::*;

fn opened(name: &str, until: i64) -> Opened {
    let circuit = Circuit::Credential { owner: TenantId::new(name) };
    Opened { circuit, status: Some(401), code: None, failures: 5, until: Wall(until) }
}

#[test]
fn at_the_bound_the_one_that_opens_again_first_is_forgotten() {
    let mut circuits = Circuits::default();
    let soonest = opened("soonest", 1);
    circuits.open(&soonest);
    for n in 0..CIRCUITS_MAX - 1 {
        circuits.open(&opened(&format!("c{n}"), 1_000));
    }
    assert!(circuits.get(&soonest.circuit).is_some());
    let last = opened("last", 500);
    circuits.open(&last);
    assert_eq!(circuits.iter().count(), CIRCUITS_MAX);
    assert!(circuits.get(&soonest.circuit).is_none() && circuits.get(&last.circuit).is_some());
    // What is open already takes no other's place.
    circuits.open(&opened("last", 700));
    assert_eq!(circuits.iter().count(), CIRCUITS_MAX);
    assert_eq!(circuits.get(&last.circuit).map(|opened| opened.until), Some(Wall(700)));
}

#[test]
fn circuits_survive_a_snapshot_as_they_are() {
    let scope = ScopeId::new("p/a");
    let route = Route::new("GET /v1/x");
    let digest = Digest([7; 32]);
    let owner = TenantId::new("p/a");
    let run = RunId::new("r");
    let mut circuits = Circuits::default();
    let all = [
        Circuit::Request { owner: owner.clone(), run: None, route: route.clone(), digest },
        Circuit::Path { owner: owner.clone(), run, route: route.clone() },
        Circuit::Credential { owner },
        Circuit::Endpoint { scope: scope.clone(), route },
        Circuit::Scope { scope },
    ];
    for circuit in all {
        let code = Some("down".to_owned());
        circuits.open(&Opened { circuit, status: Some(503), code, failures: 9, until: Wall(9) });
    }
    let written = serde_json::to_string(&circuits).expect("it is written");
    let read: Circuits = serde_json::from_str(&written).expect("it is read");
    assert_eq!(read, circuits);
    assert_eq!(read.iter().count(), 5);
}
