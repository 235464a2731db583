//! An error's body that is XML, read as if it were JSON: an element is a member of the one around it, by its local name, and
//! one without elements is its text. Repeated elements are an array. Attributes say nothing of a code and are left out.
//!
//! Bounded in depth and number, and never resolved: a body with a DOCTYPE, one that is cut or not well-formed is opaque.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};
use serde_json::{Map, Value};

/// Elements within elements.
const DEPTH_MAX: usize = 16;
/// Tags and texts of one body; an error's has a few dozen.
const EVENTS_MAX: usize = 4_096;

/// An element whose end has not come.
struct Open {
    name: String,
    members: Map<String, Value>,
    text: String,
}

/// The document with its root as the one member.
pub(super) fn read(text: &str) -> Option<Value> {
    // S3 sends space while it works, and only then how that ended.
    let mut reader = Reader::from_str(text.trim_start());
    let mut around = vec![Open { name: String::new(), members: Map::new(), text: String::new() }];
    for _ in 0..EVENTS_MAX {
        match reader.read_event().ok()? {
            Event::Start(tag) if around.len() <= DEPTH_MAX => {
                let name = tag.local_name().into_inner().to_owned();
                around.push(Open { name, members: Map::new(), text: String::new() });
            }
            Event::Empty(tag) => {
                let name = tag.local_name().into_inner().to_owned();
                add(&mut around.last_mut()?.members, name, Value::String(String::new()));
            }
            Event::End(_) => {
                let Open { name, members, text } = around.pop()?;
                let value =
                    if members.is_empty() { Value::String(text.trim().to_owned()) } else { Value::Object(members) };
                add(&mut around.last_mut()?.members, name, value);
            }
            Event::Text(text) => around.last_mut()?.text.push_str(&text),
            Event::CData(text) => around.last_mut()?.text.push_str(&text),
            Event::GeneralRef(of) => around.last_mut()?.text.push_str(&character(&of)?),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Start(_) | Event::DocType(_) => return None,
            Event::Eof => {
                let root = around.pop().filter(|_| around.is_empty())?;
                // Beside the one root there is nothing but space.
                let mut roots = root.members.values();
                let is_one = roots.next().is_some_and(|root| !root.is_array()) && roots.next().is_none();
                let is_document = is_one && root.text.trim().is_empty();
                return is_document.then_some(Value::Object(root.members));
            }
        }
    }
    None
}

/// One that every document knows.
fn character(of: &BytesRef<'_>) -> Option<String> {
    match of.resolve_char_ref().ok()? {
        Some(character) => Some(character.into()),
        None => resolve_xml_entity(of).map(String::from),
    }
}

fn add(members: &mut Map<String, Value>, name: String, value: Value) {
    match members.get_mut(&name) {
        None => {
            members.insert(name, value);
        }
        Some(Value::Array(all)) => all.push(value),
        Some(first) => {
            let first = first.take();
            members.insert(name, Value::Array(vec![first, value]));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_members_by_their_local_names() {
        for (text, value) in [
            (
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code>\n<Message>Less &amp; &#x6c;ater</Message></Error>\n",
                json!({"Error": {"Code": "SlowDown", "Message": "Less & later"}}),
            ),
            (
                "<e:ErrorResponse xmlns:e='u'><e:Error a='1'><e:Code> Throttling </e:Code></e:Error><e:RequestId/></e:ErrorResponse>",
                json!({"ErrorResponse": {"Error": {"Code": "Throttling"}, "RequestId": ""}}),
            ),
            (
                "<R><E><C>1</C></E><!-- --><E><C><![CDATA[<2>]]></C></E><E/></R>",
                json!({"R": {"E": [{"C": "1"}, {"C": "<2>"}, ""]}}),
            ),
            ("<Error>SlowDown</Error>", json!({"Error": "SlowDown"})),
        ] {
            assert_eq!(read(text), Some(value), "{text}");
        }
    }

    #[test]
    fn what_is_cut_nested_or_declares_anything_is_opaque() {
        let deep = |n: usize| "<a>".repeat(n) + &"</a>".repeat(n);
        assert!(read(&deep(DEPTH_MAX)).is_some());
        let many = |n: usize| format!("<r>{}</r>", "<a>x</a>".repeat(n));
        assert!(read(&many(100)).is_some());
        for text in [
            "",
            "plain",
            "<Error><Code>SlowDown</Code>",
            "<Error><Code>SlowDown</Error></Code>",
            "<Error/><Error/>",
            "<Error/>and more",
            "<!DOCTYPE Error [<!ENTITY a 'b'>]><Error>&a;</Error>",
            "<Error>&unknown;</Error>",
            &deep(DEPTH_MAX + 1),
            &many(EVENTS_MAX / 3),
        ] {
            assert_eq!(read(text), None, "{text:.60}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[<>/a&;!\\[\\]\"'=? \u{e9}-]{0,120}") {
            let _ = read(&text);
        }
    }
}
