//! Which requests a route or a limit is about: `POST /v1/items/{id}`, `* /files/{rest...}`.
//!
//! Matching is over the raw bytes of the path: `%2F` is not a slash, and nothing is decoded or normalised.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Pattern {
    source: String,
    /// `None` is any method.
    method: Option<String>,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Value(String),
    Rest(String),
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(source: String) -> Result<Self, String> {
        let (method, path) = source.split_once(' ').map(|(method, path)| (method, path.trim())).ok_or_else(|| {
            format!("`{source}`: write a method (or *), a space and a path, as in `POST /v1/items/{{id}}`")
        })?;
        let Some(path) = path.strip_prefix('/') else {
            return Err(format!("`{source}`: the path must begin with `/`"));
        };
        if path.contains('?') {
            return Err(format!("`{source}`: a query belongs in `when: {{query: ...}}`"));
        }
        let mut segments = Vec::new();
        for part in path.split('/') {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err(format!("`{source}`: nothing can follow `{{rest...}}`"));
            }
            segments.push(match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some("") => return Err(format!("`{source}`: `{{}}` needs a name")),
                Some(name) => match name.strip_suffix("...") {
                    Some(rest) => Segment::Rest(rest.to_owned()),
                    None => Segment::Value(name.to_owned()),
                },
                None if part == "*" => Segment::Rest(String::new()),
                None => Segment::Literal(part.to_owned()),
            });
        }
        let method = (method != "*").then(|| method.to_owned());
        Ok(Self { source, method, segments })
    }
}

impl Pattern {
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The path's values by name, if the request is meant.
    pub(crate) fn matches(&self, method: &str, path: &str) -> Option<BTreeMap<String, String>> {
        if self.method.as_deref().is_some_and(|wanted| wanted != method) {
            return None;
        }
        let mut values = BTreeMap::new();
        let mut rest = Some(path.strip_prefix('/')?);
        for segment in &self.segments {
            let here = rest?;
            let (part, after) = match here.split_once('/') {
                Some((part, after)) => (part, Some(after)),
                None => (here, None),
            };
            match segment {
                Segment::Literal(wanted) if wanted == part => {}
                Segment::Literal(_) => return None,
                Segment::Value(_) if part.is_empty() => return None,
                Segment::Value(name) => {
                    values.insert(name.clone(), part.to_owned());
                }
                Segment::Rest(name) => {
                    values.insert(name.clone(), here.to_owned());
                    return Some(values);
                }
            }
            rest = after;
        }
        rest.is_none().then_some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, method: &str, path: &str, expect: Option<&[(&str, &str)]>) {
        let values = Pattern::try_from(pattern.to_owned()).unwrap().matches(method, path);
        let expect = expect.map(|pairs| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        assert_eq!(values, expect, "{pattern} on {method} {path}");
    }

    #[test]
    fn paths_match_by_raw_segment() {
        check("GET /v1/models", "GET", "/v1/models", Some(&[]));
        check("GET /v1/models", "POST", "/v1/models", None);
        check("GET /v1/models", "GET", "/v1/models/", None);
        check("GET /v1/models", "GET", "/v1", None);
        check("* /v1/items/{id}", "PUT", "/v1/items/%2F", Some(&[("id", "%2F")]));
        check("* /v1/items/{id}", "PUT", "/v1/items/", None);
        check("* /v1/items/{id}", "PUT", "/v1/items/a/b", None);
        check("* /f/{rest...}", "GET", "/f/a//b/..", Some(&[("rest", "a//b/..")]));
        check("* /f/{rest...}", "GET", "/f/", Some(&[("rest", "")]));
        check("* /f/{rest...}", "GET", "/f", None);
        check("GET /", "GET", "/", Some(&[]));
        check("* /*", "GET", "/any/thing", Some(&[("", "any/thing")]));
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (source, word) in [
            ("/v1", "write a method"),
            ("GET v1", "begin with"),
            ("GET /{r...}/x", "nothing can follow"),
            ("GET /a?b", "query"),
        ] {
            let error = Pattern::try_from(source.to_owned()).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
