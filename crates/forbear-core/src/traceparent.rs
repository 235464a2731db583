//! `traceparent` (W3C Trace Context): the trace that a call belongs to, which is its run where the agent names none.
//! Anything wrong with it, and it counts as absent, `tracestate` too.

use http::{HeaderMap, HeaderName};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Characters of version 00, exactly.
const LEN: usize = 55;
const SAMPLED: u8 = 1;

/// A valid `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub version: u8,
    /// Never all zero.
    pub trace_id: [u8; 16],
    /// Never all zero.
    pub parent_id: [u8; 8],
    pub flags: u8,
}

impl TraceParent {
    #[must_use]
    pub const fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace id in lowercase hexadecimal.
    #[must_use]
    pub fn trace_id_hex(&self) -> String {
        hex(&self.trace_id)
    }

    /// As a header of version 00, the one that is known here.
    #[must_use]
    pub fn to_header(&self) -> String {
        format!("00-{}-{}-{}", hex(&self.trace_id), hex(&self.parent_id), hex(&[self.flags]))
    }
}

/// The request's trace; `None` where there is no valid one, or more than one.
#[must_use]
pub fn read(headers: &HeaderMap) -> Option<TraceParent> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let line = lines.next()?;
    if lines.next().is_some() { None } else { parse(line.as_bytes()) }
}

/// Reads one field value.
#[must_use]
pub fn parse(value: &[u8]) -> Option<TraceParent> {
    let value = value.trim_ascii();
    let (known, more) = value.split_at_checked(LEN)?;
    let [version] = bytes(known.get(..2)?)?;
    let may_have_more = version > 0 && more.first() == Some(&b'-');
    let separated = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
    if version == 0xff || !separated || !(more.is_empty() || may_have_more) {
        return None;
    }
    let trace_id = bytes(known.get(3..35)?)?;
    let parent_id = bytes(known.get(36..52)?)?;
    let [flags] = bytes(known.get(53..)?)?;
    let zero = trace_id == [0; 16] || parent_id == [0; 8];
    (!zero).then_some(TraceParent { version, trace_id, parent_id, flags })
}

/// Lowercase hexadecimal alone.
fn bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut all = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in all.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(all)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 15)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_vectors_of_the_standard() {
        let sampled = |value: &str| parse(value.as_bytes()).map(|parent| parent.sampled());
        for (value, expect) in [
            (VALID, Some(true)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", Some(false)),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01", None),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra", Some(true)),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some(true)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra", None),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01extra", None),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", Some(true)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", Some(false)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", None),
            ("00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01", None),
            ("0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
            ("", None),
        ] {
            assert_eq!(sampled(value), expect, "{value}");
        }
    }

    #[test]
    fn a_later_version_goes_out_as_the_known_one() {
        let later = parse(format!("cc-{}-future", &VALID[3..]).as_bytes()).unwrap();
        assert_eq!((later.version, later.to_header().as_str()), (0xcc, VALID));
        assert_eq!(later.trace_id_hex(), "0af7651916cd43dd8448eb211c80319c");
    }

    #[test]
    fn two_lines_are_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(read(&headers), None);
        headers.append("traceparent", VALID.parse().unwrap());
        assert_eq!(read(&headers).unwrap().to_header(), VALID);
        headers.append("traceparent", VALID.parse().unwrap());
        assert_eq!(read(&headers), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            trace_id in any::<[u8; 16]>(), parent_id in any::<[u8; 8]>(), flags in any::<u8>(),
        ) {
            let parent = TraceParent { version: 0, trace_id, parent_id, flags };
            let valid = trace_id != [0; 16] && parent_id != [0; 8];
            prop_assert_eq!(parse(parent.to_header().as_bytes()), valid.then_some(parent));
        }

        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&value);
        }
    }
}
