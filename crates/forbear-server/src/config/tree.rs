//! The file as it was written: values with the place that each one stands at, so that every later complaint can point
//! there. Repeated keys are kept; whoever walks the tree names them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_saphyr::{Location, Spanned};

/// Nesting of a file. The deepest legal one has six levels.
const DEPTH_MAX: usize = 32;
/// Values of a file. 256 providers of 1,000 routes would be too many for a person as well.
const NODES_MAX: usize = 100_000;
/// Values that aliases may bring in again.
const REPLAYED_MAX: usize = 10_000;

/// Where something stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// In bytes.
    pub(super) offset: usize,
    pub(super) length: usize,
    /// From 1; 0 where it is not known.
    pub(super) line: u64,
    pub(super) column: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Nothing,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) node: Node,
}

/// Why the text is no tree.
#[derive(Debug)]
pub(super) struct NotYaml {
    pub(super) said: String,
    pub(super) place: Place,
}

/// Read a document. An empty one is a map without entries.
pub(super) fn read(text: &str) -> Result<Node, NotYaml> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, max_nodes: NODES_MAX, max_documents: 1 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| {
        let place = error.location().map_or_else(Place::default, |l| place(&l));
        let said = error.without_snippet().to_string();
        // The place is said once, in our own words.
        let said = said.split(" at line ").next().unwrap_or_default().to_owned();
        NotYaml { said, place }
    })
}

impl Node {
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|e| &e.node)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().rev().find(|e| e.key == key),
            _ => None,
        }
    }

    /// Where a path leads: to the value, or as near to it as the file goes. What spans several lines is pointed at by
    /// its key.
    pub(super) fn locate(&self, path: &[String]) -> Option<Place> {
        let (mut node, mut best) = (self, None);
        for (depth, step) in path.iter().enumerate() {
            let last = depth + 1 == path.len();
            match &node.value {
                Value::Map(_) => {
                    let Some(entry) = node.entry(step) else { break };
                    let compound = matches!(entry.node.value, Value::Map(_) | Value::List(_) | Value::Nothing);
                    best = Some(if last && !compound { entry.node.place } else { entry.key_place });
                    node = &entry.node;
                }
                Value::List(items) => {
                    let Some(item) = step.parse::<usize>().ok().and_then(|i| items.get(i)) else { break };
                    best = Some(item.place);
                    node = item;
                }
                _ => break,
            }
        }
        best
    }

    pub(super) fn to_json(&self) -> Json {
        match &self.value {
            Value::Nothing => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(i) => {
                u64::try_from(*i).map(Json::from).or_else(|_| i64::try_from(*i).map(Json::from)).unwrap_or_default()
            }
            Value::Float(f) => Json::from(*f),
            Value::Text(t) => Json::from(t.as_str()),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => Json::Object(entries.iter().map(|e| (e.key.clone(), e.node.to_json())).collect()),
        }
    }
}

impl Value {
    pub(super) const fn what(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) => "a number",
            Self::Float(_) => "a fraction",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "keys with values",
        }
    }
}

fn place(location: &Location) -> Place {
    let span = location.span();
    let bytes = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
    Place {
        offset: bytes(span.byte_offset()),
        length: bytes(span.byte_len()),
        line: location.line(),
        column: location.column(),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(d)?;
        Ok(Self { value: spanned.value, place: place(&spanned.referenced) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Int(v.into()))
    }

    fn visit_i128<E>(self, v: i128) -> Result<Value, E> {
        Ok(Value::Int(v))
    }

    fn visit_u128<E>(self, v: u128) -> Result<Value, E> {
        Ok(Value::Int(i128::try_from(v).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Float(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.into()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        Value::deserialize(d)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let node = entries.next_value()?;
            map.push(Entry { key: key.value, key_place: place(&key.referenced), node });
        }
        Ok(Value::Map(map))
    }
}
