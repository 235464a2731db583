//! One text member of a JSON body, found without keeping the rest: bodies are long, and their model is a word.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// The text at a path of members joined by dots. Of a name that is there twice the last counts, as with most readers. None
/// where the body is no whole JSON, or has no text there.
#[must_use]
pub fn text(body: &[u8], path: &str) -> Option<String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let found = Member { path }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    found
}

struct Member<'p> {
    path: &'p str,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (name, rest) = self.path.split_once('.').map_or((self.path, None), |(name, rest)| (name, Some(rest)));
        let mut found = None;
        while let Some(key) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            if key != name {
                members.next_value::<IgnoredAny>()?;
            } else if let Some(path) = rest {
                found = members.next_value_seed(Member { path })?;
            } else {
                found = members.next_value_seed(Text)?;
            }
        }
        Ok(found)
    }
}

/// The member itself.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Value {
            Text(String),
            Other(IgnoredAny),
        }
        let value = <Value as serde::Deserialize>::deserialize(json)?;
        Ok(match value {
            Value::Text(text) => Some(text),
            Value::Other(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_member_is_found_wherever_it_stands() {
        for (body, path, found) in [
            (r#"{"model":"m-1","x":[{"model":"no"}]}"#, "model", Some("m-1")),
            (r#"{"x":{"model":"no"},"model":"m\u002d2"}"#, "model", Some("m-2")),
            (r#"{"input":{"model":"deep","y":1}}"#, "input.model", Some("deep")),
            (r#"{"model":"first","model":"last"}"#, "model", Some("last")),
            (r#"{"model":7}"#, "model", None),
            (r#"{"model":{"model":"no"}}"#, "model", None),
            (r#"{"input":"text"}"#, "input.model", None),
            (r#"["model"]"#, "model", None),
            (r#"{"model":"cut"#, "model", None),
            (r#"{"model":"m"} more"#, "model", None),
            ("", "model", None),
            ("12.5", "model", None),
            ("null", "model", None),
        ] {
            assert_eq!(text(body.as_bytes(), path).as_deref(), found, "{body}");
        }
    }
}
