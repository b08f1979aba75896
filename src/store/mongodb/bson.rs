//! BSON as far as MongoDB's commands and their answers need it, by <https://bsonspec.org/spec.html>.
//!
//! Values of other types are skipped. A document is read only if all of it is well-formed, and nested no
//! deeper than answers are.

/// The deepest nesting that is read; answers to the commands here have five levels.
const DEEPEST: usize = 16;

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Double(f64),
    Text(String),
    Document(Document),
    Array(Vec<Value>),
    /// Bytes of the generic subtype.
    Bytes(Vec<u8>),
    Bool(bool),
    /// Milliseconds since 1970.
    Date(i64),
    Int32(i32),
    /// Seconds since 1970 in the upper half, and a counter in the lower.
    Timestamp(u64),
    Int64(i64),
    /// A type that is not needed.
    Other,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Document> for Value {
    fn from(document: Document) -> Self {
        Self::Document(document)
    }
}

impl From<Vec<Document>> for Value {
    fn from(documents: Vec<Document>) -> Self {
        Self::Array(documents.into_iter().map(Self::Document).collect())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int32(number)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int64(number)
    }
}

/// A document: names and values, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Document(Vec<(String, Value)>);

impl Document {
    /// Returns a document with these fields.
    pub(super) fn of<const N: usize>(fields: [(&str, Value); N]) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Adds a field at the end.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|it| it.0 == name).map(|it| &it.1)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.get(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn document(&self, name: &str) -> Option<&Self> {
        match self.get(name)? {
            Value::Document(document) => Some(document),
            _ => None,
        }
    }

    /// Returns the values of an array; none of what is no array.
    pub(super) fn array(&self, name: &str) -> &[Value] {
        match self.get(name) {
            Some(Value::Array(values)) => values,
            _ => &[],
        }
    }

    /// Returns the documents of an array.
    pub(super) fn documents(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.array(name).iter().filter_map(|it| match it {
            Value::Document(document) => Some(document),
            _ => None,
        })
    }

    /// Returns a whole number of any type: servers write small ones in several.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int32(number) => Some(i64::from(*number)),
            Value::Int64(number) => Some(*number),
            #[allow(clippy::cast_possible_truncation, reason = "it is whole, and in its range")]
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                Some(*number as i64)
            }
            _ => None,
        }
    }

    /// Returns whether a field is true, or a number other than zero.
    pub(super) fn is(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Bool(flag)) => *flag,
            _ => self.number(name).is_some_and(|it| it != 0),
        }
    }

    /// Appends the bytes of the document.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend([0; 4]);
        for (name, value) in &self.0 {
            write_value(name, value, to);
        }
        to.push(0);
        write_length(start, to);
    }

    /// Reads a document that fills all bytes; `None` if they are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = Bytes { rest: bytes };
        let fields = from.document(0)?;
        from.rest.is_empty().then_some(Self(fields))
    }
}

/// Writes the length of what begins at `start` there.
fn write_length(start: usize, to: &mut [u8]) {
    // No document here is near 2 GiB.
    let length = i32::try_from(to.len() - start).unwrap_or(i32::MAX);
    to[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn write_value(name: &str, value: &Value, to: &mut Vec<u8>) {
    let kind = match value {
        Value::Double(_) => 0x01,
        Value::Text(_) => 0x02,
        Value::Document(_) => 0x03,
        Value::Array(_) => 0x04,
        Value::Bytes(_) => 0x05,
        Value::Bool(_) => 0x08,
        Value::Date(_) => 0x09,
        Value::Other => 0x0a,
        Value::Int32(_) => 0x10,
        Value::Timestamp(_) => 0x11,
        Value::Int64(_) => 0x12,
    };
    to.push(kind);
    write_name(name, to);
    match value {
        Value::Double(number) => to.extend(number.to_le_bytes()),
        Value::Text(text) => {
            let start = to.len();
            to.extend([0; 4]);
            to.extend(text.as_bytes());
            to.push(0);
            // The length of a string does not count itself.
            let length = i32::try_from(to.len() - start - 4).unwrap_or(i32::MAX);
            to[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
        Value::Document(document) => document.write(to),
        Value::Array(values) => {
            let start = to.len();
            to.extend([0; 4]);
            for (index, value) in values.iter().enumerate() {
                write_value(&index.to_string(), value, to);
            }
            to.push(0);
            write_length(start, to);
        }
        Value::Bytes(bytes) => {
            to.extend(i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_le_bytes());
            to.push(0);
            to.extend(bytes);
        }
        Value::Bool(flag) => to.push(u8::from(*flag)),
        Value::Date(number) | Value::Int64(number) => to.extend(number.to_le_bytes()),
        Value::Int32(number) => to.extend(number.to_le_bytes()),
        Value::Timestamp(number) => to.extend(number.to_le_bytes()),
        Value::Other => (),
    }
}

/// A name ends at its first NUL, so that none can have one.
fn write_name(name: &str, to: &mut Vec<u8>) {
    to.extend(name.bytes().filter(|it| *it != 0));
    to.push(0);
}

/// What is not read yet.
struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Reads a length, of which `counted` bytes are of the length itself.
    fn length(&mut self, counted: usize) -> Option<usize> {
        usize::try_from(i32::from_le_bytes(self.fixed()?)).ok()?.checked_sub(counted)
    }

    fn name(&mut self) -> Option<&'a str> {
        let end = self.rest.iter().position(|it| *it == 0)?;
        let name = self.take(end)?;
        self.take(1)?;
        str::from_utf8(name).ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.length(1)?;
        let text = self.take(length)?;
        (self.take(1)? == [0]).then_some(())?;
        str::from_utf8(text).ok()
    }

    fn document(&mut self, depth: usize) -> Option<Vec<(String, Value)>> {
        if depth > DEEPEST {
            return None;
        }
        let length = self.length(4)?;
        let mut inside = Bytes { rest: self.take(length)? };
        let mut fields = Vec::new();
        loop {
            let kind = inside.fixed::<1>()?[0];
            if kind == 0 {
                return inside.rest.is_empty().then_some(fields);
            }
            let name = inside.name()?.to_owned();
            fields.push((name, inside.value(kind, depth)?));
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<Value> {
        Some(match kind {
            0x01 => Value::Double(f64::from_le_bytes(self.fixed()?)),
            0x02 => Value::Text(self.text()?.to_owned()),
            0x03 => Value::Document(Document(self.document(depth + 1)?)),
            0x04 => {
                let fields = self.document(depth + 1)?;
                Value::Array(fields.into_iter().map(|it| it.1).collect())
            }
            0x05 => {
                let length = self.length(0)?;
                let subtype = self.fixed::<1>()?[0];
                let bytes = self.take(length)?;
                if subtype == 0 { Value::Bytes(bytes.to_owned()) } else { Value::Other }
            }
            0x08 => Value::Bool(self.fixed::<1>()?[0] != 0),
            0x09 => Value::Date(i64::from_le_bytes(self.fixed()?)),
            0x10 => Value::Int32(i32::from_le_bytes(self.fixed()?)),
            0x11 => Value::Timestamp(u64::from_le_bytes(self.fixed()?)),
            0x12 => Value::Int64(i64::from_le_bytes(self.fixed()?)),
            _ => {
                self.skip(kind)?;
                Value::Other
            }
        })
    }

    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            // Undefined, null, and the least and the greatest key.
            0x06 | 0x0a | 0xff | 0x7f => (),
            // The id of an object.
            0x07 => drop(self.take(12)?),
            // A regular expression and its options.
            0x0b => {
                self.name()?;
                self.name()?;
            }
            // A reference, code and a symbol.
            0x0c => {
                self.text()?;
                self.take(12)?;
            }
            0x0d | 0x0e => drop(self.text()?),
            // Code with its scope.
            0x0f => {
                let length = self.length(4)?;
                self.take(length)?;
            }
            // A decimal.
            0x13 => drop(self.take(16)?),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(document: &Document) -> Vec<u8> {
        let mut bytes = Vec::new();
        document.write(&mut bytes);
        bytes
    }

    #[test]
    fn the_examples_of_the_specification_are_written_and_read() {
        let hello = Document::of([("hello", "world".into())]);
        let expected = b"\x16\x00\x00\x00\x02hello\x00\x06\x00\x00\x00world\x00\x00";
        assert_eq!(bytes(&hello), expected);
        assert_eq!(Document::read(expected), Some(hello));
        let array = vec!["awesome".into(), Value::Double(5.05), 1986.into()];
        let awesome = Document::of([("BSON", Value::Array(array))]);
        let expected = b"\x31\x00\x00\x00\x04BSON\x00\x26\x00\x00\x00\x020\x00\x08\x00\x00\x00awesome\x00\x011\x00\x33\x33\x33\x33\x33\x33\x14\x40\x102\x00\xc2\x07\x00\x00\x00\x00";
        assert_eq!(bytes(&awesome), expected);
        assert_eq!(Document::read(expected), Some(awesome));
    }

    #[test]
    fn a_name_cannot_end_early() {
        let written = bytes(&Document::of([("a\0\u{1}b", 1.into())]));
        assert_eq!(Document::read(&written), Some(Document::of([("a\u{1}b", 1.into())])));
    }

    #[test]
    fn types_that_are_not_needed_are_skipped_and_others_refused() {
        let of = |field: &[u8]| {
            let length = i32::try_from(field.len() + 5 + 3).unwrap().to_le_bytes();
            [&length, field, &[0x08, 0, 1, 0]].concat()
        };
        for field in [
            &b"\x06a\0"[..],
            b"\x07a\0twelve bytes",
            b"\x0aa\0",
            b"\x0ba\0^x$\0i\0",
            b"\x0ca\0\x02\0\0\0n\0twelve bytes",
            b"\x0da\0\x02\0\0\0n\0",
            b"\x0ea\0\x02\0\0\0n\0",
            b"\x0fa\0\x05\0\0\0n",
            b"\x13a\0sixteen bytes ab",
            b"\xffa\0",
            b"\x7fa\0",
            b"\x05a\0\x01\0\0\0\x04n",
        ] {
            let read = Document::read(&of(field)).unwrap_or_else(|| panic!("{field:?}"));
            assert_eq!(read.get("a"), Some(&Value::Other), "{field:?}");
            assert!(read.is(""), "the next field follows");
        }
        for field in
            [&b"\x14a\0"[..], b"\x02a\0\x02\0\0\0nn", b"\x02a\0\0\0\0\0", b"\x03a\0\0\0\0\0"]
        {
            assert_eq!(Document::read(&of(field)), None, "{field:?}");
        }
    }

    #[test]
    fn a_document_that_is_nested_too_deep_is_refused() {
        let nested = |depth: usize| {
            (0..depth).fold(Document::default(), |inner, _| Document::of([("a", inner.into())]))
        };
        assert!(Document::read(&bytes(&nested(DEEPEST))).is_some());
        assert!(Document::read(&bytes(&nested(DEEPEST + 1))).is_none());
        let array = |depth| Document::of([("a", Value::Array(vec![nested(depth).into()]))]);
        assert!(Document::read(&bytes(&array(DEEPEST - 2))).is_some(), "an array is one level");
        assert!(Document::read(&bytes(&array(DEEPEST - 1))).is_none());
    }

    #[test]
    fn small_numbers_are_read_in_each_type() {
        let of = |value: Value| Document::of([("n", value)]);
        for value in [Value::Int32(1), Value::Int64(1), Value::Double(1.0)] {
            assert_eq!((of(value.clone()).number("n"), of(value).is("n")), (Some(1), true));
        }
        assert_eq!(of(Value::Double(1e15 - 1.0)).number("n"), Some(999_999_999_999_999));
        // Above this a double need not be the number that was meant.
        for number in [1.5, f64::NAN, 1e15, -1e15, 1e300] {
            let value = Value::Double(number);
            assert_eq!((of(value.clone()).number("n"), of(value).is("n")), (None, false));
        }
        assert!(of(true.into()).is("n") && !of(false.into()).is("n") && !of(0.into()).is("n"));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int64),
            any::<i32>().prop_map(Value::Int32),
            any::<i64>().prop_map(Value::Date),
            any::<u64>().prop_map(Value::Timestamp),
            any::<bool>().prop_map(Value::Bool),
            ".{0,9}".prop_map(Value::Text),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::Bytes),
            Just(Value::Other),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            let fields = prop::collection::vec(("[a-z]{0,4}", inner.clone()), 0..4);
            prop_oneof![
                fields.prop_map(|it| Value::Document(Document(it))),
                prop::collection::vec(inner, 0..4).prop_map(Value::Array),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_no_part_of_it(value in value(), cut in any::<prop::sample::Index>()) {
            let document = Document::of([("a", value)]);
            let bytes = bytes(&document);
            prop_assert_eq!(Document::read(&bytes), Some(document));
            prop_assert_eq!(Document::read(&bytes[..cut.index(bytes.len())]), None);
        }
    }
}
