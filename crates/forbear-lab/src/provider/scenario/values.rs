//! The scenario language's small values: ordered header fields, JSON with computed values, HTTP/2 codes.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::provider::template::{Context, Expression, Template};

/// Header fields in the order and with the case they are written in; a name may come more than once.
///
/// Written as a map (`Name: value`, `Name: [one, two]`) or, where order between repeated names matters, as a list of
/// pairs (`- [Name, value]`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, Template)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("header fields: a map of names to values, or a list of [name, value] pairs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = seq.next_element::<(String, Template)>()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Values>()? {
                    fields.extend(values.0.into_iter().map(|value| (name.clone(), value)));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_any(FieldsVisitor)
    }
}

/// One value or several.
struct Values(Vec<Template>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValuesVisitor;

        impl<'de> Visitor<'de> for ValuesVisitor {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a header value or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Values, E> {
                Template::try_from(text.to_owned()).map(|value| Values(vec![value])).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Values, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Values, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Values, E> {
                self.visit_str(if value { "true" } else { "false" })
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Values, E> {
                Err(E::custom(format!("quote this number ({number}), so that its digits stay as they are written")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element::<Template>()? {
                    values.push(value);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_any(ValuesVisitor)
    }
}

/// JSON in the order it is written in, with computed values in its strings. A string that is nothing but
/// `{{json ...}}` becomes the bare value (a number, an array) instead of a string.
#[derive(Debug, Clone)]
pub(crate) enum Json {
    Plain(serde_json::Value),
    Text(Template),
    Bare(Expression),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn render(&self, context: &mut Context<'_>) -> String {
        match self {
            Self::Plain(value) => value.to_string(),
            Self::Text(template) => serde_json::Value::String(template.render(context)).to_string(),
            Self::Bare(expression) => {
                let text = expression.evaluate(context);
                let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
                if is_json { text } else { serde_json::Value::String(text).to_string() }
            }
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.render(context)).collect();
                format!("[{}]", items.join(","))
            }
            Self::Map(pairs) => {
                let pair = |(name, value): &(String, Json)| {
                    format!("{}:{}", serde_json::Value::String(name.clone()), value.render(context))
                };
                let pairs: Vec<String> = pairs.iter().map(pair).collect();
                format!("{{{}}}", pairs.join(","))
            }
        }
    }

    fn text(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix("{{json ").and_then(|rest| rest.strip_suffix("}}"));
        match bare {
            Some(expression) if !expression.contains("}}") => Expression::parse(expression.trim()).map(Self::Bare),
            _ => Template::try_from(text.to_owned()).map(Self::Text),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("text or JSON")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
                Json::text(text).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
                Ok(Json::Plain(number.into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Plain(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
                Ok(Json::Plain(number.into()))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Plain(value.into()))
            }

            fn visit_unit<E: Error>(self) -> Result<Json, E> {
                Ok(Json::Plain(serde_json::Value::Null))
            }

            fn visit_none<E: Error>(self) -> Result<Json, E> {
                self.visit_unit()
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
                Json::deserialize(deserializer)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Json::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Json::Map(pairs))
            }
        }
        deserializer.deserialize_any(JsonVisitor)
    }
}

/// An HTTP/2 error code, by name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Code(pub(crate) u32);

const CODE_NAMES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

impl TryFrom<String> for Code {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let named = (0_u32..).zip(CODE_NAMES).find(|(_, name)| *name == text).map(|(code, _)| code);
        named.or_else(|| text.parse().ok()).map(Self).ok_or_else(|| {
            format!("`{text}` is no HTTP/2 error code; write a number or one of {}", CODE_NAMES.join(", "))
        })
    }
}

/// A part of the scenario that outlives it: an answer under way keeps its own when the scenario is replaced.
#[derive(Debug, Default)]
pub(crate) struct Held<T>(Arc<T>);

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> From<T> for Held<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> std::ops::Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Held<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}
