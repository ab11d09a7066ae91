//! Arguments of verbs, and what they return.

use std::fmt;
use std::str::FromStr;

use bytes::{Buf, BufMut, Bytes};
use thiserror::Error;

use crate::fault::{Fault, widen};

/// How deep lists may be in lists.
const DEEPEST: usize = 8;
/// Types in one signature.
const MOST_TYPES: usize = 64;

/// What one argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// `i8`, `i16`, `i32`, `i64`: signed, with so many bytes.
    Signed(u8),
    /// `u8`, `u16`, `u32`, `u64`: unsigned, with so many bytes.
    Unsigned(u8),
    /// `f32`.
    Float,
    /// `f64`.
    Double,
    /// `bool`: one byte.
    Bool,
    /// `bytes`: a length of four bytes, and the bytes.
    Bytes,
    /// `str`: as `bytes`, in UTF-8.
    Str,
    /// `stream`: the id of the connection that is a stream, as `u64`.
    Stream,
    /// `[T]`: a count of four bytes, and the items.
    List(Box<Type>),
    /// `T?`: may be missing at the end.
    Optional(Box<Type>),
}

impl Type {
    /// Bytes that one of these has at least.
    fn least(&self) -> usize {
        match self {
            Self::Signed(size) | Self::Unsigned(size) => usize::from(*size),
            Self::Bool => 1,
            Self::Float | Self::Bytes | Self::Str | Self::List(_) => 4,
            Self::Double | Self::Stream => 8,
            Self::Optional(_) => 0,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(size) => write!(f, "i{}", u32::from(*size) * 8),
            Self::Unsigned(size) => write!(f, "u{}", u32::from(*size) * 8),
            Self::Float => f.write_str("f32"),
            Self::Double => f.write_str("f64"),
            Self::Bool => f.write_str("bool"),
            Self::Bytes => f.write_str("bytes"),
            Self::Str => f.write_str("str"),
            Self::Stream => f.write_str("stream"),
            Self::List(item) => write!(f, "[{item}]"),
            Self::Optional(inner) => write!(f, "{inner}?"),
        }
    }
}

/// An argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of a signed type.
    Signed(i64),
    /// Of an unsigned type, or the id of a stream.
    Unsigned(u64),
    /// Of `f32` or `f64`.
    Float(f64),
    /// Of `bool`.
    Bool(bool),
    /// Of `bytes`.
    Bytes(Bytes),
    /// Of `str`.
    Str(String),
    /// Of a list.
    List(Vec<Value>),
    /// Not there: of an optional type.
    Missing,
}

/// What a verb takes, or returns: types separated by spaces.
///
/// ```
/// use sbp_seastar::{Signature, Value};
///
/// let signature: Signature = "i32 [str] u64?".parse().unwrap();
/// let values = [Value::Signed(-1), Value::List(vec![Value::Str("a".into())]), Value::Missing];
/// let bytes = signature.encode(&values).unwrap();
/// assert_eq!(bytes, [255, 255, 255, 255, 1, 0, 0, 0, 1, 0, 0, 0, b'a']);
/// assert_eq!(signature.decode(&bytes.into()).unwrap(), values);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature(Vec<Type>);

/// A text is no signature.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not what arguments are: {why}; write types separated by spaces, of i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 bool \
     bytes str stream, [T] for a list of T, and T? at the end for what may be missing"
)]
pub struct SignatureError {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub why: &'static str,
}

/// Values do not fit a signature.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// There are not as many as there should be.
    #[error("there are {given} values, and {expected} are expected")]
    Count {
        /// How many there are.
        given: usize,
        /// How many there should be.
        expected: usize,
    },
    /// One is of another kind.
    #[error("value {place} is no {expected}")]
    Kind {
        /// Which, from 0 on.
        place: usize,
        /// What it should be.
        expected: Type,
    },
    /// One is a number that its type cannot have.
    #[error("value {place} is a number that {expected} cannot have")]
    Range {
        /// Which, from 0 on.
        place: usize,
        /// What it should be.
        expected: Type,
    },
}

impl FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let error = |why| SignatureError {
            text: text.to_owned(),
            why,
        };
        let mut types = Vec::new();
        for word in text.split_ascii_whitespace() {
            let next = parse(word, 0).map_err(error)?;
            let is_optional = matches!(next, Type::Optional(_));
            if matches!(types.last(), Some(Type::Optional(_))) && !is_optional {
                return Err(error("what may be missing stands at the end"));
            }
            types.push(next);
        }
        match types.len() <= MOST_TYPES {
            true => Ok(Self(types)),
            false => Err(error("there are more than 64 types")),
        }
    }
}

fn parse(word: &str, depth: usize) -> Result<Type, &'static str> {
    if depth > DEEPEST {
        return Err("lists are more than 8 deep");
    }
    if let Some(inner) = word.strip_suffix('?') {
        return match depth {
            0 => Ok(Type::Optional(Box::new(parse(inner, depth + 1)?))),
            _ => Err("only a whole argument may be missing"),
        };
    }
    if let Some(item) = word.strip_prefix('[') {
        let item = item.strip_suffix(']').ok_or("a bracket is not closed")?;
        return Ok(Type::List(Box::new(parse(item, depth + 1)?)));
    }
    Ok(match word {
        "i8" => Type::Signed(1),
        "i16" => Type::Signed(2),
        "i32" => Type::Signed(4),
        "i64" => Type::Signed(8),
        "u8" => Type::Unsigned(1),
        "u16" => Type::Unsigned(2),
        "u32" => Type::Unsigned(4),
        "u64" => Type::Unsigned(8),
        "f32" => Type::Float,
        "f64" => Type::Double,
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "str" => Type::Str,
        "stream" => Type::Stream,
        _ => return Err("there is no such type"),
    })
}

impl Signature {
    /// The types.
    #[must_use]
    pub fn types(&self) -> &[Type] {
        &self.0
    }

    /// The values as bytes. What may be missing at the end may be left out.
    ///
    /// # Errors
    /// [`ArgumentError`].
    pub fn encode(&self, values: &[Value]) -> Result<Vec<u8>, ArgumentError> {
        let needed = self.0.iter().filter(|one| !matches!(one, Type::Optional(_))).count();
        if values.len() < needed || values.len() > self.0.len() {
            return Err(ArgumentError::Count {
                given: values.len(),
                expected: self.0.len(),
            });
        }
        let mut bytes = Vec::new();
        let mut is_missing = false;
        for (place, (kind, value)) in self.0.iter().zip(values).enumerate() {
            let kind = match (kind, value) {
                (Type::Optional(_), Value::Missing) => {
                    is_missing = true;
                    continue;
                }
                // Nothing says which one is missing: it can only be the last ones.
                (Type::Optional(_), _) if is_missing => {
                    let expected = kind.clone();
                    return Err(ArgumentError::Kind { place, expected });
                }
                (Type::Optional(inner), _) => inner,
                (kind, _) => kind,
            };
            put(kind, value, place, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// The values that bytes are. Bytes behind the last one are left out: a peer may know more arguments than this side.
    ///
    /// # Errors
    /// [`Fault::Cut`], or [`Fault::Text`].
    pub fn decode(&self, bytes: &Bytes) -> Result<Vec<Value>, Fault> {
        let mut left = bytes.clone();
        let mut values = Vec::with_capacity(self.0.len());
        for kind in &self.0 {
            values.push(match kind {
                Type::Optional(_) if left.is_empty() => Value::Missing,
                Type::Optional(inner) => take(inner, &mut left)?,
                kind => take(kind, &mut left)?,
            });
        }
        Ok(values)
    }
}

fn put(kind: &Type, value: &Value, place: usize, bytes: &mut Vec<u8>) -> Result<(), ArgumentError> {
    let range = || ArgumentError::Range {
        place,
        expected: kind.clone(),
    };
    match (kind, value) {
        (Type::Signed(size), Value::Signed(number)) => put_signed(*size, *number, bytes).ok_or_else(range)?,
        (Type::Signed(size), Value::Unsigned(number)) => {
            let number = i64::try_from(*number).map_err(|_| range())?;
            put_signed(*size, number, bytes).ok_or_else(range)?;
        }
        (Type::Unsigned(size), Value::Unsigned(number)) => put_unsigned(*size, *number, bytes).ok_or_else(range)?,
        (Type::Unsigned(size), Value::Signed(number)) => {
            let number = u64::try_from(*number).map_err(|_| range())?;
            put_unsigned(*size, number, bytes).ok_or_else(range)?;
        }
        (Type::Stream, Value::Unsigned(id)) => bytes.put_u64_le(*id),
        (Type::Float, Value::Float(number)) => bytes.put_f32_le(single(*number).ok_or_else(range)?),
        (Type::Double, Value::Float(number)) => bytes.put_f64_le(*number),
        (Type::Bool, Value::Bool(is)) => bytes.put_u8(u8::from(*is)),
        (Type::Bytes, Value::Bytes(data)) => put_bytes(data, bytes).ok_or_else(range)?,
        (Type::Str, Value::Str(text)) => put_bytes(text.as_bytes(), bytes).ok_or_else(range)?,
        (Type::List(kind), Value::List(items)) => {
            bytes.put_u32_le(u32::try_from(items.len()).map_err(|_| range())?);
            for item in items {
                put(kind, item, place, bytes)?;
            }
        }
        _ => {
            let expected = kind.clone();
            return Err(ArgumentError::Kind { place, expected });
        }
    }
    Ok(())
}

fn put_signed(size: u8, number: i64, bytes: &mut Vec<u8>) -> Option<()> {
    match size {
        1 => bytes.put_i8(number.try_into().ok()?),
        2 => bytes.put_i16_le(number.try_into().ok()?),
        4 => bytes.put_i32_le(number.try_into().ok()?),
        _ => bytes.put_i64_le(number),
    }
    Some(())
}

fn put_unsigned(size: u8, number: u64, bytes: &mut Vec<u8>) -> Option<()> {
    match size {
        1 => bytes.put_u8(number.try_into().ok()?),
        2 => bytes.put_u16_le(number.try_into().ok()?),
        4 => bytes.put_u32_le(number.try_into().ok()?),
        _ => bytes.put_u64_le(number),
    }
    Some(())
}

fn put_bytes(data: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    bytes.put_u32_le(u32::try_from(data.len()).ok()?);
    bytes.put_slice(data);
    Some(())
}

/// The nearest number with half the precision, unless a finite one is too large for it.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "there is no other way from one to the other, and what is lost is judged"
)]
fn single(number: f64) -> Option<f32> {
    let single = number as f32;
    (single.is_finite() || !number.is_finite()).then_some(single)
}

fn take(kind: &Type, left: &mut Bytes) -> Result<Value, Fault> {
    Ok(match kind {
        Type::Signed(1) => Value::Signed(left.try_get_i8()?.into()),
        Type::Signed(2) => Value::Signed(left.try_get_i16_le()?.into()),
        Type::Signed(4) => Value::Signed(left.try_get_i32_le()?.into()),
        Type::Signed(_) => Value::Signed(left.try_get_i64_le()?),
        Type::Unsigned(1) => Value::Unsigned(left.try_get_u8()?.into()),
        Type::Unsigned(2) => Value::Unsigned(left.try_get_u16_le()?.into()),
        Type::Unsigned(4) => Value::Unsigned(left.try_get_u32_le()?.into()),
        Type::Unsigned(_) | Type::Stream => Value::Unsigned(left.try_get_u64_le()?),
        Type::Float => Value::Float(left.try_get_f32_le()?.into()),
        Type::Double => Value::Float(left.try_get_f64_le()?),
        Type::Bool => Value::Bool(left.try_get_u8()? != 0),
        Type::Bytes => Value::Bytes(take_bytes(left)?),
        Type::Str => {
            let text = take_bytes(left)?;
            Value::Str(std::str::from_utf8(&text).map_err(|_| Fault::Text)?.to_owned())
        }
        Type::List(kind) => {
            let count = widen(left.try_get_u32_le()?);
            // Nothing is set aside for items that cannot be there.
            let needed = count.saturating_mul(kind.least());
            if needed > left.len() {
                let missing = needed - left.len();
                return Err(Fault::Cut { missing });
            }
            let mut items = Vec::with_capacity(count);
            for _ in 0..count {
                items.push(take(kind, left)?);
            }
            Value::List(items)
        }
        Type::Optional(inner) => take(inner, left)?,
    })
}

fn take_bytes(left: &mut Bytes) -> Result<Bytes, Fault> {
    let length = widen(left.try_get_u32_le()?);
    match length.checked_sub(left.len()) {
        None | Some(0) => Ok(left.split_to(length)),
        Some(missing) => Err(Fault::Cut { missing }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signature(text: &str) -> Signature {
        text.parse().unwrap()
    }

    /// Values of a type, and the type.
    fn typed(depth: u32) -> BoxedStrategy<(Type, Value)> {
        let signed =
            |size: u8, value: BoxedStrategy<i64>| value.prop_map(move |it| (Type::Signed(size), Value::Signed(it)));
        let unsigned =
            |size: u8, value: BoxedStrategy<u64>| value.prop_map(move |it| (Type::Unsigned(size), Value::Unsigned(it)));
        let leaf = prop_oneof![
            signed(1, any::<i8>().prop_map(i64::from).boxed()),
            signed(2, any::<i16>().prop_map(i64::from).boxed()),
            signed(4, any::<i32>().prop_map(i64::from).boxed()),
            signed(8, any::<i64>().boxed()),
            unsigned(1, any::<u8>().prop_map(u64::from).boxed()),
            unsigned(2, any::<u16>().prop_map(u64::from).boxed()),
            unsigned(4, any::<u32>().prop_map(u64::from).boxed()),
            unsigned(8, any::<u64>().boxed()),
            any::<f32>().prop_map(|it| (Type::Float, Value::Float(it.into()))),
            any::<f64>().prop_map(|it| (Type::Double, Value::Float(it))),
            any::<bool>().prop_map(|it| (Type::Bool, Value::Bool(it))),
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(|it| (Type::Bytes, Value::Bytes(it.into()))),
            any::<String>().prop_map(|it| (Type::Str, Value::Str(it))),
            any::<u64>().prop_map(|it| (Type::Stream, Value::Unsigned(it))),
        ];
        leaf.prop_recursive(depth, 8, 1, |inner| {
            (inner, 0..5_usize)
                .prop_map(|((kind, value), count)| (Type::List(Box::new(kind)), Value::List(vec![value; count])))
        })
        .boxed()
    }

    proptest! {
        #[test]
        fn values_come_back(all in proptest::collection::vec(typed(3), 0..6), left_out in 0..3_usize, extra in 0..9_usize) {
            let (types, mut values): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let mut words: Vec<_> = types.iter().map(ToString::to_string).collect();
            words.extend((0..left_out).map(|_| String::from("[u64]?")));
            let signature = signature(&words.join(" "));
            let mut bytes = signature.encode(&values).unwrap();
            values.extend((0..left_out).map(|_| Value::Missing));
            prop_assert_eq!(&bytes, &signature.encode(&values).unwrap());
            prop_assert_eq!(&signature.decode(&bytes.clone().into()).unwrap(), &values);
            if left_out == 0 {
                // Arguments that this side does not know.
                bytes.resize(bytes.len() + extra, 7);
                prop_assert_eq!(&signature.decode(&bytes.into()).unwrap(), &values);
            }
        }

        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = Bytes::from(bytes);
            for text in ["[[[str]]]", "bytes str f32", "i8 [bool] u64?", "[i8]"] {
                // Whatever comes of it, it is no more than there was.
                drop(signature(text).decode(&bytes));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let range = |place, expected| Err(ArgumentError::Range { place, expected });
        let two = signature("u8 i16");
        assert_eq!(
            two.encode(&[Value::Signed(256), Value::Signed(0)]),
            range(0, Type::Unsigned(1))
        );
        assert_eq!(
            two.encode(&[Value::Signed(-1), Value::Signed(0)]),
            range(0, Type::Unsigned(1))
        );
        assert_eq!(
            two.encode(&[Value::Signed(0), Value::Unsigned(u64::MAX)]),
            range(1, Type::Signed(2))
        );
        assert_eq!(signature("f32").encode(&[Value::Float(1e300)]), range(0, Type::Float));
        let count = two.encode(&[Value::Signed(0)]);
        assert_eq!(count, Err(ArgumentError::Count { given: 1, expected: 2 }));
        let kind = two.encode(&[Value::Bool(true), Value::Signed(0)]);
        let expected = Type::Unsigned(1);
        assert_eq!(kind, Err(ArgumentError::Kind { place: 0, expected }));
        let gap = signature("i8? i8?").encode(&[Value::Missing, Value::Signed(1)]);
        assert!(matches!(gap, Err(ArgumentError::Kind { place: 1, .. })), "{gap:?}");
    }

    #[test]
    fn lists_that_cannot_be_there_take_no_memory() {
        let claimed = Bytes::from_static(&[255, 255, 255, 255, 1, 2, 3]);
        for text in ["[u64]", "[[i8]]", "[str]", "[bool]", "bytes"] {
            assert!(
                matches!(signature(text).decode(&claimed), Err(Fault::Cut { .. })),
                "{text}"
            );
        }
        let text = Bytes::from_static(&[1, 0, 0, 0, 0xff]);
        assert_eq!(signature("str").decode(&text), Err(Fault::Text));
    }

    #[test]
    fn texts_that_are_no_signature_say_why() {
        for (text, why) in [
            ("int", "there is no such type"),
            ("[i8", "a bracket is not closed"),
            ("i8? i8", "what may be missing stands at the end"),
            ("[i8?]", "only a whole argument may be missing"),
            ("[[[[[[[[[[i8]]]]]]]]]]", "lists are more than 8 deep"),
            ("i8??", "only a whole argument may be missing"),
        ] {
            let error = text.parse::<Signature>().unwrap_err();
            assert_eq!(error.why, why, "{text}");
        }
        assert_eq!(signature("").types(), []);
        assert_eq!(signature("").encode(&[]), Ok(Vec::new()));
    }
}
