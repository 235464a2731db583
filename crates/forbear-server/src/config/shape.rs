//! Whether a file has the shape of its schema: every key known, every value of its kind. The schema is generated from the
//! types, so that nothing here can fall behind them.
//!
//! It reports everything it finds; what it reports is left out of the later steps, so that one slip does not hide another.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::fault::Code;
use super::suggest::{listed, nearest};
use super::tree::{Entry, Node, Place, Value};

/// A schema with the defaults that examples are taken from.
pub(super) struct Shape<'a> {
    pub(super) schema: &'a Json,
    pub(super) defaults: &'a Json,
}

/// One thing that does not fit.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) code: Code,
    pub(super) path: Vec<String>,
    pub(super) place: Place,
    pub(super) happened: String,
    pub(super) hint: String,
}

impl<'a> Shape<'a> {
    /// Everything in the tree that does not fit.
    pub(super) fn check(&self, root: &Node) -> Vec<Misfit> {
        let mut found = Vec::new();
        self.walk(self.schema, root, root.place, &mut Vec::new(), &mut found);
        found
    }

    /// Keys that must be there and are not, in a configuration whose defaults are filled in.
    pub(super) fn missing(&self, whole: &Json) -> Vec<(Vec<String>, String)> {
        let mut found = Vec::new();
        self.demand(self.schema, whole, &mut Vec::new(), &mut found);
        found
    }

    fn walk(&self, schema: &Json, node: &Node, at: Place, path: &mut Vec<String>, found: &mut Vec<Misfit>) {
        let schema = self.resolve(schema);
        let names = names(schema);
        match (&node.value, kind(schema)) {
            // A key without a value is as good as none.
            (Value::Nothing, _) if path.last().is_none_or(|p| p.parse::<usize>().is_err()) => {}
            (Value::Map(entries), "object") => self.map(schema, entries, path, found),
            (Value::List(items), "array") => {
                for (i, item) in items.iter().enumerate() {
                    path.push(i.to_string());
                    self.walk(&schema["items"], item, item.place, path, found);
                    path.pop();
                }
            }
            (Value::Bool(_), "boolean") => {}
            (Value::Text(text), "string") if names.is_empty() || names.contains(&text.as_str()) => {}
            (Value::Text(text), "string") => {
                let happened = format!("`{}` is none of the words that can stand here", cut(text));
                found.push(Misfit {
                    code: Code::FB1005,
                    path: path.clone(),
                    place: at,
                    happened,
                    hint: choice(text, &names),
                });
            }
            (Value::Int(i), "integer") => {
                let most = most(schema);
                if !(0..=most).contains(i) {
                    let happened = format!("{i} is not between 0 and {most}");
                    let hint = self.example(schema, path);
                    found.push(Misfit { code: Code::FB1007, path: path.clone(), place: at, happened, hint });
                }
            }
            (value, _) => {
                let place = if matches!(value, Value::Map(_) | Value::List(_)) { at } else { node.place };
                let happened = format!("expected {}, found {}", expected(schema, &names), value.what());
                let hint = match value {
                    Value::Text(text) => number_meant(text, path).unwrap_or_else(|| self.example(schema, path)),
                    Value::Int(_) | Value::Float(_) | Value::Bool(_)
                        if kind(schema) == "string" && names.is_empty() =>
                    {
                        "put it in quotes".into()
                    }
                    _ => self.example(schema, path),
                };
                found.push(Misfit { code: Code::FB1005, path: path.clone(), place, happened, hint });
            }
        }
    }

    fn map(&self, schema: &Json, entries: &[Entry], path: &mut Vec<String>, found: &mut Vec<Misfit>) {
        let mut seen = BTreeSet::new();
        for entry in entries {
            path.push(entry.key.clone());
            let at = if matches!(entry.node.value, Value::Map(_) | Value::List(_) | Value::Nothing) {
                entry.key_place
            } else {
                entry.node.place
            };
            if !seen.insert(entry.key.as_str()) {
                found.push(Misfit {
                    code: Code::FB1003,
                    path: path.clone(),
                    place: entry.key_place,
                    happened: format!("`{}` stands here twice", entry.key),
                    hint: "keep one of the two".into(),
                });
            }
            let member = schema["properties"].get(&entry.key);
            let open = Some(&schema["additionalProperties"]).filter(|s| s.is_object());
            match member.or(open) {
                Some(member) => self.walk(member, &entry.node, at, path, found),
                None => found.push(Misfit {
                    code: Code::FB1004,
                    path: path.clone(),
                    place: entry.key_place,
                    happened: format!("there is no key `{}` here", cut(&entry.key)),
                    hint: self.key_meant(schema, &entry.key),
                }),
            }
            path.pop();
        }
    }

    fn key_meant(&self, schema: &Json, written: &str) -> String {
        let keys: Vec<&str> = members(schema).map(|(k, _)| k).collect();
        if let Some(near) = nearest(written, keys.iter().copied()) {
            return format!("did you mean `{near}`? The keys here are: {}", listed(keys));
        }
        let homes = self.homes(written);
        if homes.is_empty() {
            format!("the keys here are: {}", listed(keys))
        } else {
            format!("`{written}` belongs under {}; the keys here are: {}", homes.join(" or "), listed(keys))
        }
    }

    /// Where in the schema a key of this name stands.
    fn homes(&self, written: &str) -> Vec<String> {
        let mut homes = Vec::new();
        for (name, member) in members(self.schema) {
            let member = self.resolve(member);
            let each = self.resolve(&member["additionalProperties"]);
            if members(member).any(|(k, _)| k == written) {
                homes.push(format!("`{name}`"));
            } else if members(each).any(|(k, _)| k == written) {
                homes.push(format!("a name in `{name}`"));
            }
        }
        if members(self.schema).any(|(k, _)| k == written) {
            homes.push("the top of the file".into());
        }
        homes
    }

    fn demand(&self, schema: &Json, whole: &Json, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
        let schema = self.resolve(schema);
        match whole {
            Json::Object(map) => {
                for key in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
                    if map.get(key).is_none_or(Json::is_null) {
                        let member = self.resolve(&schema["properties"][key]);
                        let mut at = path.clone();
                        at.push(key.into());
                        let example = self.example(member, &at);
                        found.push((at, example));
                    }
                }
                for (key, value) in map {
                    let member = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
                    path.push(key.clone());
                    self.demand(member, value, path, found);
                    path.pop();
                }
            }
            Json::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    path.push(i.to_string());
                    self.demand(&schema["items"], item, path, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    /// The schema itself, behind references and behind "or nothing".
    fn resolve(&self, schema: &'a Json) -> &'a Json {
        let mut schema = schema;
        // References do not nest deeper than the types do.
        for _ in 0..8 {
            if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
                schema = &self.schema["$defs"][name];
            } else if let Some(some) = schema["anyOf"].as_array().and_then(|a| a.iter().find(|s| s["type"] != "null")) {
                schema = some;
            } else {
                break;
            }
        }
        schema
    }

    /// `for example drain_seconds: 30`, from the default at this place or from one of its siblings.
    fn example(&self, schema: &Json, path: &[String]) -> String {
        let Some((key, parents)) = path.split_last() else { return "keys with values".into() };
        let mut at = Some(self.defaults);
        for step in parents {
            at = at.and_then(|v| v.get(step).or_else(|| v.as_object().and_then(|m| m.values().next())));
        }
        let default = at.and_then(|v| v.get(key)).filter(|v| v.is_u64() || v.is_boolean() || v.is_string());
        let value = match (default, kind(schema)) {
            (Some(value), _) => value.to_string().trim_matches('"').to_owned(),
            (None, "integer") => "10".into(),
            (None, "boolean") => "true".into(),
            (None, "array") => "[...]".into(),
            (None, "object") => "{...}".into(),
            (None, _) => names(schema).first().map_or("text", |n| *n).to_owned(),
        };
        let key = if key.parse::<usize>().is_ok() { "-".into() } else { format!("{key}:") };
        format!("for example `{key} {value}`")
    }
}

fn members(schema: &Json) -> impl Iterator<Item = (&str, &Json)> {
    schema["properties"].as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v))
}

/// The one type of a schema, `null` aside. Words from a closed list are strings.
fn kind(schema: &Json) -> &str {
    match &schema["type"] {
        Json::String(t) => t,
        Json::Array(types) => types.iter().filter_map(Json::as_str).find(|t| *t != "null").unwrap_or(""),
        _ if !names(schema).is_empty() => "string",
        _ => "",
    }
}

/// The words of a closed list.
fn names(schema: &Json) -> Vec<&str> {
    let lists = [&schema["enum"], &schema["oneOf"]];
    let items = lists.into_iter().filter_map(Json::as_array).flatten();
    items
        .flat_map(|item| match &item["enum"] {
            Json::Array(more) => more.iter().filter_map(Json::as_str).collect(),
            _ => item["const"].as_str().or_else(|| item.as_str()).into_iter().collect::<Vec<_>>(),
        })
        .collect()
}

fn most(schema: &Json) -> i128 {
    match schema["format"].as_str() {
        Some("uint16") => u16::MAX.into(),
        Some("uint32") => u32::MAX.into(),
        _ => u64::MAX.into(),
    }
}

fn expected(schema: &Json, names: &[&str]) -> String {
    match kind(schema) {
        "integer" => "a whole number".into(),
        "boolean" => "true or false".into(),
        "array" => "a list".into(),
        "object" => "keys with values".into(),
        _ if !names.is_empty() => format!("one of {}", names.join(", ")),
        _ => "text".into(),
    }
}

fn choice(written: &str, names: &[&str]) -> String {
    match nearest(written, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? One of: {}", listed(names.iter().copied())),
        None => format!("one of: {}", listed(names.iter().copied())),
    }
}

/// `10 GiB` and `30s` are meant well; the key says the unit.
fn number_meant(text: &str, path: &[String]) -> Option<String> {
    let key = path.last()?;
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|n| *n > 0)?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let scale: &[(&str, u64)] = if key.contains("_bytes_") {
        &[
            ("kib", 1 << 10),
            ("mib", 1 << 20),
            ("gib", 1 << 30),
            ("tib", 1 << 40),
            ("k", 1_000),
            ("kb", 1_000),
            ("m", 1_000_000),
            ("mb", 1_000_000),
            ("g", 1_000_000_000),
            ("gb", 1_000_000_000),
            ("b", 1),
        ]
    } else if key.ends_with("_seconds") {
        &[("s", 1), ("sec", 1), ("m", 60), ("min", 60), ("h", 3_600), ("d", 86_400)]
    } else if key.ends_with("_ms") {
        &[("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000)]
    } else if key.ends_with("_days") {
        &[("d", 1), ("w", 7)]
    } else {
        &[]
    };
    let factor = scale.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor)?;
    Some(format!("the unit is in the key's name: `{key}: {}`", number.checked_mul(*factor)?))
}

fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
