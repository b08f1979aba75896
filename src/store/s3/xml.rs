//! Reads the answers of S3 and of the Security Token Service, which are XML of some flat elements.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

/// The deepest nesting that is read; the answers here have four levels.
const DEEPEST: usize = 16;

/// The elements of an answer that hold text, in order, each with its name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Elements(Vec<(String, String)>);

impl Elements {
    /// Reads an answer; `None` if it is not XML. What follows its root element is ignored.
    pub(super) fn read(answer: &[u8]) -> Option<Self> {
        let mut reader = Reader::from_reader(answer);
        let (mut open, mut all) = (Vec::new(), Vec::new());
        let mut text = String::new();
        loop {
            match reader.read_event().ok()? {
                Event::Start(element) if open.len() < DEEPEST => {
                    text.clear();
                    open.push(String::from_utf8(element.local_name().as_ref().to_vec()).ok()?);
                }
                Event::Text(part) => text.push_str(&part.decode().ok()?),
                Event::GeneralRef(entity) => match entity.resolve_char_ref().ok()? {
                    Some(character) => text.push(character),
                    None => text.push_str(resolve_xml_entity(&entity.decode().ok()?)?),
                },
                Event::End(_) => {
                    let name = open.pop()?;
                    let value = std::mem::take(&mut text);
                    if !value.trim().is_empty() {
                        all.push((name, value.trim().to_owned()));
                    }
                    if open.is_empty() {
                        return Some(Self(all));
                    }
                }
                Event::Start(_) | Event::Eof => return None,
                _ => (),
            }
        }
    }

    /// Returns the text of the first element of this name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.texts(name).next()
    }

    /// Returns the texts of all elements of this name.
    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |it| it.0 == name).map(|it| it.1.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_elements_are_read_at_any_depth() {
        let answer =
            br#"<?xml version="1.0"?><List xmlns="http://s3"><Name>b</Name><Contents><Key>a/b</Key>
            <ETag>&quot;x&quot;</ETag></Contents><Contents><Key>c&#45;d</Key></Contents></List> "#;
        let elements = Elements::read(answer).unwrap();
        assert_eq!(elements.texts("Key").collect::<Vec<_>>(), ["a/b", "c-d"]);
        assert_eq!(elements.text("ETag"), Some("\"x\""));
        assert_eq!(elements.text("Code"), None);
    }

    #[test]
    fn what_is_not_xml_is_no_answer() {
        let nested = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(Elements::read(nested(DEEPEST).as_bytes()).is_some());
        let deep = nested(DEEPEST + 1);
        for answer in ["", "{}", "<a>", "<a></b>", "<a>&unknown;</a>", "text", &deep] {
            assert_eq!(Elements::read(answer.as_bytes()), None, "{answer}");
        }
    }

    #[test]
    fn text_before_an_element_is_no_part_of_it() {
        let elements = Elements::read(b"<a>before<b>in</b></a>").unwrap();
        assert_eq!(elements.text("b"), Some("in"));
    }
}
