//! What requests did to the provider's world: effects, counted, and lookups that see them only later.

use std::collections::BTreeMap;

use serde::Serialize;

use super::request::Pairs;

/// So many records are kept; the count goes on beyond.
pub const EFFECTS_KEPT_MAX: usize = 20_000;

/// Everything that was done: the count is what "no second side effect" is measured by.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Effects {
    pub count: u64,
    /// The newest [`EFFECTS_KEPT_MAX`].
    pub records: Vec<EffectRecord>,
}

/// One effect.
#[derive(Debug, Clone, Serialize)]
pub struct EffectRecord {
    pub n: u64,
    pub name: String,
    pub id: String,
    pub key: Option<String>,
    /// When it was committed, on the provider's monotonic clock.
    pub at_ns: u64,
    /// The arrival that did it.
    pub arrival: u64,
    pub credential: String,
    pub method: String,
    pub target: String,
    pub body: serde_json::Value,
    pub fields: BTreeMap<String, String>,
    #[serde(skip)]
    pub(crate) visible_at_ns: u64,
    #[serde(skip)]
    pub(crate) lookups_to_miss: u64,
}

impl EffectRecord {
    /// A field by the name that templates and lookups use.
    pub(crate) fn field(&self, name: &str) -> String {
        match name {
            "id" => self.id.clone(),
            "n" => self.n.to_string(),
            "key" => self.key.clone().unwrap_or_default(),
            "name" => self.name.clone(),
            "credential" => self.credential.clone(),
            _ => match name.strip_prefix("body.").or_else(|| name.starts_with('/').then_some(name)) {
                Some(pointer) => match self.body.pointer(pointer) {
                    Some(serde_json::Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                    None => String::new(),
                },
                None => self.fields.get(name).cloned().unwrap_or_default(),
            },
        }
    }
}

/// What a lookup looks for: all of it must hold, and an absent value never does.
pub(crate) struct Wanted {
    /// Empty is any.
    pub(crate) name: String,
    /// Fields that equal a value.
    pub(crate) by: Pairs,
    /// Fields whose value stands somewhere in a text, as in a search expression.
    pub(crate) within: Pairs,
}

impl Wanted {
    fn means(&self, record: &EffectRecord) -> bool {
        let equal = |(field, value): &(String, String)| !value.is_empty() && record.field(field) == *value;
        let within = |(field, text): &(String, String)| {
            let value = record.field(field);
            !value.is_empty() && text.contains(&value)
        };
        (self.name.is_empty() || record.name == self.name)
            && self.by.iter().all(equal)
            && self.within.iter().all(within)
    }
}

impl Effects {
    pub(crate) fn commit(&mut self, record: EffectRecord) {
        self.count += 1;
        if self.records.len() >= EFFECTS_KEPT_MAX {
            self.records.remove(0);
        }
        self.records.push(record);
    }

    /// The visible records that match; a hidden one that matches has been looked for once more.
    pub(crate) fn look_up(&mut self, wanted: &Wanted, now_ns: u64) -> Vec<EffectRecord> {
        let mut found = Vec::new();
        for record in &mut self.records {
            if !wanted.means(record) {
                continue;
            }
            if record.lookups_to_miss > 0 {
                record.lookups_to_miss -= 1;
            } else if now_ns >= record.visible_at_ns {
                found.push(record.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: u64, visible_at_ns: u64, lookups_to_miss: u64) -> EffectRecord {
        EffectRecord {
            n,
            name: "payment".into(),
            id: format!("p{n}"),
            key: Some(format!("k{n}")),
            at_ns: 0,
            arrival: n,
            credential: "anonymous".into(),
            method: "POST".into(),
            target: "/".into(),
            body: serde_json::json!({"metadata": {"ref": "r"}, "amount": 5}),
            fields: BTreeMap::new(),
            visible_at_ns,
            lookups_to_miss,
        }
    }

    fn ids(effects: &mut Effects, by: &[(&str, &str)], now_ns: u64) -> Vec<String> {
        let by: Vec<_> = by.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
        let wanted = Wanted { name: "payment".into(), by, within: Vec::new() };
        effects.look_up(&wanted, now_ns).into_iter().map(|record| record.id).collect()
    }

    #[test]
    fn a_commit_is_seen_only_after_its_time_and_its_lookups() {
        let mut effects = Effects::default();
        effects.commit(record(1, 100, 0));
        effects.commit(record(2, 0, 2));
        assert_eq!(ids(&mut effects, &[("id", "p1")], 99), [""; 0]);
        assert_eq!(ids(&mut effects, &[("id", "p1")], 100), ["p1"]);
        assert_eq!(ids(&mut effects, &[("key", "k2")], 0), [""; 0]);
        assert_eq!(ids(&mut effects, &[("key", "k2")], 0), [""; 0]);
        assert_eq!(ids(&mut effects, &[("key", "k2")], 0), ["p2"]);
        assert_eq!(ids(&mut effects, &[("body./metadata/ref", "r"), ("body./amount", "5")], 100), ["p1", "p2"]);
        assert_eq!(ids(&mut effects, &[("id", "")], 100), [""; 0], "an absent value never matches an absent field");
    }
}
