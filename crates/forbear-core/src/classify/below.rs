//! Sends that Forbear did not make: a layer between it and the provider tries again by itself, and its answer says how often.
//!
//! Believed only in the fields that the contract names. `x-envoy-attempt-count` is nobody's word without that: every Envoy
//! on the way writes it, also into the request that it passes on, and a server that gives request fields back would charge a
//! caller for a number that the caller made up. What is said is bounded by [`RETRIES_BELOW_MAX`], because it is charged to a
//! budget that a task shares over all its providers.

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::number;
use super::raw::{self, Malformed};
use crate::contract::{AttemptsBelow, Counted};

/// Retries that one answer may charge, whatever it says. Layers that retry stop after five or so.
pub const RETRIES_BELOW_MAX: u32 = 16;

/// Retries that were made below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// Those that are charged.
    pub retries: u32,
    /// Those that were said; saturated.
    pub claimed: u64,
    /// The fields that said it, as sent: `x-envoy-attempt-count: 3`.
    pub said: String,
}

impl Below {
    /// More was said than one answer may charge.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        u64::from(self.retries) < self.claimed
    }
}

/// Several fields count different retries, and add up. A field that is there twice, or no plain number, says nothing.
pub(super) fn read(fields: &[AttemptsBelow], headers: &HeaderMap, malformed: &mut Malformed) -> Option<Below> {
    let (mut claimed, mut said) = (0_u64, Vec::new());
    for AttemptsBelow { header, counts } in fields {
        let mut lines = headers.get_all(header.as_str()).iter();
        let Some(line) = lines.next() else { continue };
        let Some(number) = raw::text(line).and_then(number::digits).filter(|_| lines.next().is_none()) else {
            malformed.note_field(headers, header);
            continue;
        };
        let retries = match counts {
            Counted::Attempts => number.saturating_sub(1),
            Counted::Retries => number,
        };
        if retries > 0 {
            claimed = claimed.saturating_add(retries);
            said.push(format!("{header}: {}", raw::shown(line.as_bytes())));
        }
    }
    let retries = u32::try_from(claimed).unwrap_or(u32::MAX).min(RETRIES_BELOW_MAX);
    (retries > 0).then(|| Below { retries, claimed, said: said.join(", ") })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(sent: &[(&str, &str)]) -> (Option<Below>, Vec<String>) {
        let named = [
            ("x-envoy-attempt-count", Counted::Attempts),
            ("x-attempted-retries", Counted::Retries),
            ("x-attempted-fallbacks", Counted::Retries),
        ];
        let fields = named.map(|(header, counts)| AttemptsBelow { header: header.into(), counts });
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let mut malformed = Malformed::default();
        (read(&fields, &headers, &mut malformed), malformed.0)
    }

    #[test]
    fn attempts_and_retries_are_told_apart_and_add_up() {
        for (sent, retries) in [
            (&[("x-envoy-attempt-count", "3")][..], 2),
            (&[("x-attempted-retries", "2"), ("x-attempted-fallbacks", "1")], 3),
            (&[("x-envoy-attempt-count", " 2 "), ("x-attempted-retries", "0")], 1),
        ] {
            let (below, malformed) = of(sent);
            let below = below.unwrap();
            assert_eq!((below.retries, below.claimed, below.is_cut()), (retries, retries.into(), false), "{sent:?}");
            assert!(malformed.is_empty());
        }
        assert_eq!(of(&[("x-envoy-attempt-count", "3")]).0.unwrap().said, "x-envoy-attempt-count: 3");
    }

    #[test]
    fn one_send_no_number_and_a_field_that_no_contract_names_are_nothing() {
        for sent in [&[][..], &[("x-envoy-attempt-count", "1")], &[("x-envoy-attempt-count", "0")], &[("x-tries", "9")]]
        {
            assert_eq!(of(sent), (None, vec![]), "{sent:?}");
        }
        for value in ["-1", "+2", "2.0", "two", "", "2, 3"] {
            let (below, malformed) = of(&[("x-attempted-retries", value)]);
            assert_eq!((below, malformed.len()), (None, 1), "{value:?}");
        }
        assert_eq!(of(&[("x-attempted-retries", "2"), ("x-attempted-retries", "3")]).0, None);
    }

    #[test]
    fn a_lie_is_bounded_and_recorded_as_what_it_was() {
        for (value, claimed) in [("4000000000", 4_000_000_000), ("99999999999999999999999", u64::MAX)] {
            let below = of(&[("x-attempted-retries", value)]).0.unwrap();
            assert_eq!((below.retries, below.claimed), (RETRIES_BELOW_MAX, claimed));
            assert!(below.is_cut() && below.said.ends_with(value), "{below:?}");
        }
    }
}
