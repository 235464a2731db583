//! Redirects: nothing follows one, and one to the provider itself comes back to Forbear.

use forbear_lab::provider::{Options, Provider, Scenario};

use crate::agent::{Agent, SIDES, field, policy};
use crate::rig::Rig;

#[tokio::test]
async fn fb_118_no_body_goes_where_a_redirect_points() {
    let other = Provider::start(Scenario::from_yaml("routes: []\n").unwrap(), Options::default()).await.unwrap();
    let elsewhere = format!("{}/x", other.base_url());
    for (agent_http2, provider_http2) in SIDES {
        let routes: String = [301, 302, 303, 307, 308]
            .map(|s| {
                format!("  - match: '* /{s}'\n    respond: {{status: {s}, headers: {{Location: '{elsewhere}'}}}}\n")
            })
            .concat();
        let rig = Rig::new(&format!("routes:\n{routes}"), &policy("", provider_http2, "")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        for status in [301, 302, 303, 307, 308] {
            for method in ["POST", "GET", "PUT"] {
                let response = agent.call(method, &format!("/p/{status}"), "secret").await;
                assert_eq!(response.status().as_u16(), status);
                assert_eq!(field(&response, "location"), elsewhere);
            }
        }
        assert_eq!(rig.provider.arrivals().len(), 15);
    }
    assert_eq!(other.arrivals().len(), 0);
}

#[tokio::test]
async fn fb_119_a_redirect_to_the_provider_comes_back_to_forbear() {
    // What the provider says, what the agent reads; `$` is the provider's own address, `@` the agent's own prefix, `^` where
    // the agent found Forbear.
    let table = [
        ("Location", "/api/workflows/x/", "@/workflows/x/"),
        ("Location", "/api/workflows/x", "@/workflows/x"),
        ("Location", "$/api/workflows/x/?a=%2F&b=+", "^@/workflows/x/?a=%2F&b=+"),
        ("Location", "$/api", "^@"),
        ("Location", "$/apix/y", "$/apix/y"),
        ("Location", "/outside", "/outside"),
        ("Location", "next", "next"),
        ("Location", "//elsewhere.test/api/x", "//elsewhere.test/api/x"),
        ("Location", "https://elsewhere.test/api/x", "https://elsewhere.test/api/x"),
        ("Operation-Location", "$/api/jobs/1", "^@/jobs/1"),
        (
            "Link",
            "<$/api/x?page=2>; rel=\"next\", <$/api/x?page=9>; rel=\"last\"",
            "<^@/x?page=2>; rel=\"next\", <^@/x?page=9>; rel=\"last\"",
        ),
        (
            "Link",
            "<https://elsewhere.test/a,b>; rel=\"help\", </api/x>; rel=self",
            "<https://elsewhere.test/a,b>; rel=\"help\", <@/x>; rel=self",
        ),
        ("Content-Location", "$/api/x", "$/api/x"),
    ];
    for is_http2 in [false, true] {
        let config = policy("", is_http2, "").replace("$BASE", "$BASE/api");
        let rig = Rig::new("routes: []\n", &config).await;
        for (name, given, expected) in table {
            let own = rig.provider.base_url();
            let value = serde_json::to_string(&given.replace('$', &own)).unwrap();
            let scenario = format!(
                "routes:\n  - match: 'GET /api/y'\n    respond: {{status: 307, headers: {{{name}: {value}}}}}\n"
            );
            rig.provider.set_scenario(Scenario::from_yaml(&scenario).unwrap());
            for prefix in ["/p", "/~t1/p"] {
                let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
                let response = agent.call("GET", &format!("{prefix}/y"), "").await;
                let expected = expected.replace('$', &own).replace('@', prefix).replace('^', "http://gateway.test");
                assert_eq!(field(&response, name), expected, "{name}: {given}");
            }
        }
        // Repeated fields stay repeated.
        let own = rig.provider.base_url();
        let scenario = format!(
            "routes:\n  - match: 'GET /api/y'\n    respond: {{headers: {{Link: ['<{own}/api/1>', '<{own}/api/2>']}}}}\n"
        );
        rig.provider.set_scenario(Scenario::from_yaml(&scenario).unwrap());
        let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
        let response = agent.call("GET", "/p/y", "").await;
        let links: Vec<_> = response.headers().get_all("link").iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(links, ["<http://gateway.test/p/1>", "<http://gateway.test/p/2>"]);
    }
}
