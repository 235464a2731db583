//! JSON in its canonical form (RFC 8785): the order of members, the space between them and the spelling of numbers make no
//! difference to it.
//!
//! It promises the same bytes for the same value. It does not look for numbers that a double cannot hold exactly: integers
//! are written as they are, and whoever must not compare those looks before.

use serde_json::{Result, Value};

pub(crate) fn of(value: &Value) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write(value, &mut out)?;
    Ok(out)
}

fn write(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Value::Array(items) => list(b"[]", items, out, write),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            list(b"{}", members, out, |(name, member), out| {
                serde_json::to_writer(&mut *out, name)?;
                out.push(b':');
                write(member, out)
            })
        }
        // Fractions are spelled as ECMAScript does.
        Value::Number(number) if number.is_f64() => {
            out.extend(serde_json_canonicalizer::to_vec(number)?);
            Ok(())
        }
        scalar => serde_json::to_writer(out, scalar),
    }
}

fn list<T>(
    ends: &[u8; 2],
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    out.push(ends[0]);
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(item, out)?;
    }
    out.push(ends[1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_sorted_and_tight() {
        let value = json!({"b": [1, "x\n\u{1}"], "a": null, "é": true, "\u{fb33}": {}, "\u{1f600}": 1e30, "n": -0.0});
        let canonical = "{\"a\":null,\"b\":[1,\"x\\n\\u0001\"],\"n\":0,\"é\":true,\"\u{1f600}\":1e+30,\"\u{fb33}\":{}}";
        assert_eq!(String::from_utf8(of(&value).unwrap()).unwrap(), canonical);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let number =
            any::<f64>().prop_filter_map("JSON has it", |f| serde_json::Number::from_f64(f).map(Value::Number));
        let exact = (-(1_i64 << 53)..=1 << 53).prop_map(Value::from);
        let text = any::<String>().prop_map(Value::from);
        let scalar = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, exact, text];
        scalar.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_what_others_make_of_it(value in any_value()) {
            prop_assert_eq!(of(&value).unwrap(), serde_json_canonicalizer::to_vec(&value).unwrap());
        }
    }
}
