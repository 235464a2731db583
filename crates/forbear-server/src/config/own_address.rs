//! A provider whose `base_url` is the address that the server itself listens on: each call would come back as a new one.
//!
//! Only what the two texts say is compared, with the names of this machine; no name is looked up. A way around through another
//! machine is met by `gateway::hops` when a call takes it.

use std::net::{IpAddr, SocketAddr};

use forbear_core::policy::{Fault, FaultKind, Policy};
use http::Uri;

pub(super) fn check(listen: SocketAddr, policy: &Policy) -> Vec<Fault> {
    let leads_back = policy.providers.iter().filter(|(_, contract)| is_own(listen, &contract.base_url));
    leads_back
        .map(|(name, contract)| Fault {
            at: vec!["providers".into(), name.clone(), "base_url".into()],
            kind: FaultKind::BadUrl,
            happened: format!(
                "`{}` is where Forbear itself listens, so its calls would come back to it",
                contract.base_url
            ),
            hint: "say where the provider is, or let Forbear listen on another port".into(),
            candidates: Vec::new(),
        })
        .collect()
}

fn is_own(listen: SocketAddr, base_url: &str) -> bool {
    let Ok(uri) = base_url.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let port = authority.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    if port != listen.port() || port == 0 {
        return false;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let host = host.to_ascii_lowercase();
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        // Who connects to no address in particular connects to this machine.
        Ok(ip) if ip.is_unspecified() => listen.ip().is_unspecified() || listen.ip().is_loopback(),
        Ok(ip) if listen.ip().is_unspecified() => ip.is_loopback(),
        Ok(ip) => ip == listen.ip().to_canonical(),
        Err(_) if host == "localhost" || host.ends_with(".localhost") => {
            listen.ip().is_unspecified() || listen.ip().is_loopback()
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listeners_own_address_is_known_by_its_names() {
        for (listen, base_url, is) in [
            ("127.0.0.1:8429", "http://127.0.0.1:8429", true),
            ("127.0.0.1:8429", "http://localhost:8429/openai", true),
            ("127.0.0.1:8429", "http://LOCALHOST.:8429", true),
            ("127.0.0.1:8429", "https://localhost:8429", true),
            ("127.0.0.1:8429", "http://[::ffff:127.0.0.1]:8429", true),
            ("127.0.0.1:8429", "http://0.0.0.0:8429", true),
            ("127.0.0.1:80", "http://localhost", true),
            ("0.0.0.0:8429", "http://127.0.0.9:8429", true),
            ("[::]:8429", "http://[::1]:8429", true),
            ("192.168.1.5:8429", "http://192.168.1.5:8429", true),
            ("127.0.0.1:8429", "http://127.0.0.1:8430", false),
            ("127.0.0.1:8429", "http://127.0.0.2:8429", false),
            ("192.168.1.5:8429", "http://localhost:8429", false),
            ("127.0.0.1:8429", "https://api.example.com:8429", false),
            ("127.0.0.1:0", "http://127.0.0.1:9000", false),
        ] {
            assert_eq!(is_own(listen.parse().unwrap(), base_url), is, "{listen} {base_url}");
        }
    }
}
