//! Keys that a provider takes in the body. They are read there once it is kept, and nothing is written into it.

use forbear_core::event::{KeyOrigin, KeyUsed};
use forbear_core::fingerprint::JSON_BYTES_MAX;
use forbear_core::idempotency_key;
use forbear_core::ids::Key;
use http::header::CONTENT_ENCODING;

use super::call::Call;
use crate::http::body::RequestBody;

impl Call {
    /// The key of a write whose provider reads it from the body.
    pub(super) fn read_key(&mut self) {
        let u = &self.understood;
        let Some(rule) = u.provider.compiled.contract.idempotency.as_ref() else { return };
        let Some(member) = rule.member.as_deref().filter(|_| u.class.rank.writes() && u.key.is_none()) else { return };
        let Some(RequestBody::Replayable(body)) = &self.body else { return };
        let is_plain = body.bytes() <= JSON_BYTES_MAX && !self.head.headers.contains_key(CONTENT_ENCODING);
        if !is_plain || !rule.methods.iter().any(|method| method == self.head.method.as_str()) {
            return;
        }
        if let Some(value) = idempotency_key::in_json(&body.chunks().concat(), member, rule.only_with.as_deref()) {
            self.understood.key = Some(KeyUsed {
                header: format!("body:{member}"),
                value: Key::new(&value),
                origin: KeyOrigin::Agent,
                retention_seconds: Some(rule.retention_seconds),
            });
        }
    }
}
