//! The part of JSONPath (RFC 9535) that names members and lists: `$`, `.name`, `['a name']`, `[0]` and `[*]`. No filters, no
//! descent, no slices: what it selects is bounded by what it says.

use serde_json::Value;

const PATH_BYTES_MAX: usize = 200;
const STEPS_MAX: usize = 16;

/// Why a path cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    #[error("a path begins with `$`")]
    NoRoot,
    #[error("a step is `.name`, `['a name']`, `[0]` or `[*]`")]
    BadStep,
    #[error("it is longer than {PATH_BYTES_MAX} bytes or {STEPS_MAX} steps")]
    TooLong,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(Box<str>),
    At(usize),
    Each,
}

/// A path, ready to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Step>);

impl Path {
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        if text.len() > PATH_BYTES_MAX {
            return Err(PathFault::TooLong);
        }
        let mut rest = text.strip_prefix('$').ok_or(PathFault::NoRoot)?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = step(rest).ok_or(PathFault::BadStep)?;
            steps.push(step);
            rest = after;
        }
        if steps.len() > STEPS_MAX { Err(PathFault::TooLong) } else { Ok(Self(steps)) }
    }

    /// Whether it names more than one place.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.0.contains(&Step::Each)
    }

    /// What it names, where that is one place.
    #[must_use]
    pub fn one<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Member(name) => value.as_object()?.get(&**name),
            Step::At(at) => value.as_array()?.get(*at),
            Step::Each => None,
        })
    }

    /// All that it names; nothing where a list or a member on the way is not there, or there are more than `most`.
    #[must_use]
    pub fn list<'v>(&self, value: &'v Value, most: usize) -> Option<Vec<&'v Value>> {
        let mut values = vec![value];
        for step in &self.0 {
            let mut next = Vec::with_capacity(values.len());
            for value in values {
                match step {
                    Step::Member(name) => next.push(value.as_object()?.get(&**name)?),
                    Step::At(at) => next.push(value.as_array()?.get(*at)?),
                    Step::Each => next.extend(value.as_array()?),
                }
                if next.len() > most {
                    return None;
                }
            }
            values = next;
        }
        Some(values)
    }
}

fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii());
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii());
        return (begins && plain).then(|| (Step::Member(name.into()), rest));
    }
    let inner = text.strip_prefix('[')?;
    if let Some(quoted) = inner.strip_prefix('\'') {
        let (name, rest) = quoted.split_once("']")?;
        return (!name.is_empty() && !name.contains(['\'', '\\'])).then(|| (Step::Member(name.into()), rest));
    }
    let (index, rest) = inner.split_once(']')?;
    if index == "*" {
        return Some((Step::Each, rest));
    }
    let canonical = index == "0" || index.starts_with(|c: char| matches!(c, '1'..='9'));
    let index = index.parse().ok().filter(|_| canonical && index.bytes().all(|b| b.is_ascii_digit()))?;
    Some((Step::At(index), rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_path_names() {
        let value = json!({"data": [{"id": "a", "m": {"x y": 1}}, {"id": "b", "m": {"x y": 2}}], "one": [7]});
        let all = |path: &str| Path::parse(path).unwrap().list(&value, 100).map(|found| json!(found));
        assert_eq!(all("$.data[*].id"), Some(json!(["a", "b"])));
        assert_eq!(all("$.data[*].m['x y']"), Some(json!([1, 2])));
        assert_eq!(all("$['data'][1].id"), Some(json!(["b"])));
        assert_eq!(all("$"), Some(json!([value])));
        for absent in ["$.data[*].no", "$.data[2]", "$.one.x", "$.data.id", "$.one[*].x"] {
            assert_eq!(all(absent), None, "{absent}");
        }
        assert_eq!(Path::parse("$.data[*]").unwrap().list(&value, 1), None, "more than may be looked at");
        assert_eq!(Path::parse("$.data[0].m['x y']").unwrap().one(&value), Some(&json!(1)));
        assert_eq!(Path::parse("$.data[*]").unwrap().one(&value), None);
    }

    #[test]
    fn what_is_no_path() {
        for (path, fault) in [
            ("", PathFault::NoRoot),
            ("data", PathFault::NoRoot),
            ("$data", PathFault::BadStep),
            ("$.", PathFault::BadStep),
            ("$..id", PathFault::BadStep),
            ("$.a b", PathFault::BadStep),
            ("$.1a", PathFault::BadStep),
            ("$[", PathFault::BadStep),
            ("$[-1]", PathFault::BadStep),
            ("$[01]", PathFault::BadStep),
            ("$[1:2]", PathFault::BadStep),
            ("$[?@.a]", PathFault::BadStep),
            ("$['a\\'']", PathFault::BadStep),
            ("$['']", PathFault::BadStep),
            ("$[99999999999999999999999]", PathFault::BadStep),
        ] {
            assert_eq!(Path::parse(path), Err(fault), "{path}");
        }
        assert_eq!(Path::parse(&format!("${}", ".a".repeat(17))), Err(PathFault::TooLong));
        assert_eq!(Path::parse(&format!("$.{}", "a".repeat(200))), Err(PathFault::TooLong));
    }
}
