//! Clients whose own retries stand on Forbear's: two layers that repeat multiply, and each hides from the other what it does.
//!
//! The first repeat of a client that its kit made by itself is answered with how to turn that off, in `Forbear-Advice` and in
//! one line of the log, once for each credential and kind of kit. It decides nothing, and is bounded: [`CLIENTS_MAX`] are
//! known, and at the bound the one that was told first is forgotten. A kit that marks no repeats is not known by them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use forbear_core::event::Joined;
use forbear_core::ids::ScopeId;
use forbear_core::retry_marker::Marker;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Response};

use super::Gateway;
use super::advice::FORBEAR_ADVICE;
use super::call::Call;
use super::own::FORBEAR_JOINED;
use crate::http::relay::AgentBody;

/// Clients that are remembered as told.
const CLIENTS_MAX: usize = 4_096;

/// A kind of kit: all that turn their retries off in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kit {
    StainlessPython,
    StainlessJs,
    Stainless,
    Aws,
    GoogleCloudPython,
    GoogleCloud,
    StripePython,
    StripeNode,
    Stripe,
}

impl Kit {
    /// By the mark on its repeats, and what it calls itself. A kit of Stripe's marks none: its repeat has its first key.
    fn of(fields: &HeaderMap, marker: Option<Marker>) -> Option<Self> {
        let text = |name: &str| fields.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let agent = text(USER_AGENT.as_str());
        match (marker, text("x-stainless-lang")) {
            (Some(Marker::Stainless), "python") => Some(Self::StainlessPython),
            (Some(Marker::Stainless), "js") => Some(Self::StainlessJs),
            (Some(Marker::Stainless), _) => Some(Self::Stainless),
            (Some(Marker::Aws), _) => Some(Self::Aws),
            (Some(Marker::GoogleCloud), _) if text("x-goog-api-client").contains("gl-python/") => {
                Some(Self::GoogleCloudPython)
            }
            (Some(Marker::GoogleCloud), _) => Some(Self::GoogleCloud),
            (None, _) if !agent.starts_with("Stripe/") => None,
            (None, _) if agent.contains("PythonBindings/") => Some(Self::StripePython),
            (None, _) if agent.contains("NodeBindings/") => Some(Self::StripeNode),
            (None, _) => Some(Self::Stripe),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::StainlessPython => "python kit that sends x-stainless-retry-count",
            Self::StainlessJs => "js kit that sends x-stainless-retry-count",
            Self::Stainless => "kit that sends x-stainless-retry-count",
            Self::Aws => "AWS kit",
            Self::GoogleCloudPython => "Google Cloud python kit",
            Self::GoogleCloud => "Google Cloud kit",
            Self::StripePython => "Stripe python kit",
            Self::StripeNode => "Stripe node kit",
            Self::Stripe => "Stripe kit",
        }
    }

    /// What to set where the client is made.
    const fn off(self) -> &'static str {
        match self {
            Self::StainlessPython => "max_retries=0",
            Self::StainlessJs => "maxRetries: 0",
            Self::Stainless => "its maximum of retries to 0",
            // Its kits in all languages read it; the first send counts.
            Self::Aws => "AWS_MAX_ATTEMPTS=1",
            Self::GoogleCloudPython => "retry=None with each call",
            Self::GoogleCloud => "its retry options to none",
            Self::StripePython => "max_network_retries=0",
            Self::StripeNode => "maxNetworkRetries: 0",
            Self::Stripe => "its maximum of network retries to 0",
        }
    }
}

/// Who was told.
#[derive(Debug, Default)]
pub struct Told {
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    known: BTreeSet<(ScopeId, Kit)>,
    /// Who was told first stands first.
    order: VecDeque<(ScopeId, Kit)>,
}

impl Told {
    /// True for the first time.
    fn is_new(&self, scope: &ScopeId, kit: Kit) -> bool {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = (scope.clone(), kit);
        if !clients.known.insert(client.clone()) {
            return false;
        }
        clients.order.push_back(client);
        if clients.order.len() > CLIENTS_MAX
            && let Some(oldest) = clients.order.pop_front()
        {
            clients.known.remove(&oldest);
        }
        true
    }
}

/// A call that its kit repeats, or may be found to.
pub(super) struct Stacked {
    gateway: Arc<Gateway>,
    scope: ScopeId,
    kit: Kit,
    is_marked: bool,
}

impl Stacked {
    /// Only watched, nothing is repeated here, and its clients are told nothing.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let u = &call.understood;
        let is_marked = u.marker.as_ref().is_some_and(|marker| marker.is_repeat());
        if u.provider.compiled.observes || !(is_marked || u.marker.is_none() && u.key.is_some()) {
            return None;
        }
        let kit = Kit::of(&call.head.headers, u.marker.as_ref().map(|marker| marker.marker))?;
        Some(Self { gateway: Arc::clone(&call.gateway), scope: u.scope.clone(), kit, is_marked })
    }

    pub(super) fn tell(self, response: &mut Response<AgentBody>) {
        let fields = response.headers_mut();
        let by_key = || fields.get(FORBEAR_JOINED).is_some_and(|how| how == Joined::SameKey.as_str());
        if !(self.is_marked || by_key()) || !self.gateway.told.is_new(&self.scope, self.kit) {
            return;
        }
        let (kit, off) = (self.kit.as_str(), self.kit.off());
        tracing::warn!(scope = %self.scope, kit, set = off, "a client repeats calls that Forbear repeats already; turn its retries off");
        let said = format!("retries_multiply: Forbear repeats calls already; set {off} in this client");
        if let Ok(said) = HeaderValue::from_str(&said) {
            // What a run is told of better ways stands beside it.
            fields.append(FORBEAR_ADVICE, said);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn a_kit_is_known_by_its_mark_and_its_name() {
        for (fields, marker, kit) in [
            (&[("x-stainless-lang", "python")][..], Some(Marker::Stainless), Some(Kit::StainlessPython)),
            (&[("x-stainless-lang", "js")], Some(Marker::Stainless), Some(Kit::StainlessJs)),
            (&[], Some(Marker::Stainless), Some(Kit::Stainless)),
            (&[("user-agent", "Boto3/1.40 md/Botocore#1.40")], Some(Marker::Aws), Some(Kit::Aws)),
            (
                &[("x-goog-api-client", "gl-python/3.12 gccl/2")],
                Some(Marker::GoogleCloud),
                Some(Kit::GoogleCloudPython),
            ),
            (&[("x-goog-api-client", "gl-node/22 gccl/7")], Some(Marker::GoogleCloud), Some(Kit::GoogleCloud)),
            (&[("user-agent", "Stripe/v1 PythonBindings/13.0.0")], None, Some(Kit::StripePython)),
            (&[("user-agent", "Stripe/v1 NodeBindings/20.0.0")], None, Some(Kit::StripeNode)),
            (&[("user-agent", "Stripe/v1 GoBindings/82")], None, Some(Kit::Stripe)),
            (&[("user-agent", "curl/8.5")], None, None),
            (&[], None, None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            }
            assert_eq!(Kit::of(&headers, marker), kit, "{fields:?}");
        }
    }

    #[test]
    fn each_client_is_told_once_and_the_first_told_is_forgotten_first() {
        let told = Told::default();
        let scope = |n: usize| ScopeId::new(&format!("p/{n}"));
        assert!(told.is_new(&scope(0), Kit::Aws) && told.is_new(&scope(0), Kit::Stripe));
        assert!(!told.is_new(&scope(0), Kit::Aws));
        assert!((1..CLIENTS_MAX).all(|n| told.is_new(&scope(n), Kit::Aws)));
        assert_eq!(told.clients.lock().unwrap().known.len(), CLIENTS_MAX);
        assert!(told.is_new(&scope(0), Kit::Aws), "forgotten, and told once more");
        assert!(!told.is_new(&scope(2), Kit::Aws));
    }
}
