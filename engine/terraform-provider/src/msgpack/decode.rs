//! The tolerant decoder, within limits.

use std::collections::BTreeMap;

use crate::value::{Dynamic, Number, NumberError, Path, Step, Type, TypeError, Value, nfc};

/// How deeply values may be nested.
const DEEPEST: usize = 128;
/// How many values one message may have.
const MOST: usize = 4_000_000;

/// Bytes that are no value of a type.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", if path.is_root() { "value".to_owned() } else { path.to_string() })]
pub struct DecodeError {
    /// The part of the value.
    pub path: Path,
    /// The reason.
    #[source]
    pub problem: DecodeProblem,
}

/// Why bytes are no value of a type.
#[derive(Debug, thiserror::Error)]
pub enum DecodeProblem {
    /// The bytes end too early.
    #[error("the bytes end too early")]
    End,
    /// The value has another form.
    #[error("byte {mark:#04x} does not begin {ty}")]
    Form {
        /// The byte with the form.
        mark: u8,
        /// The type that is required.
        ty: Type,
    },
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A number is not a number, or out of range.
    #[error("a number has no value")]
    Number(#[from] NumberError),
    /// A type that comes with a value is none.
    #[error("the type of a value cannot be read")]
    Type(#[from] TypeError),
    /// An object has an attribute that its type does not have.
    #[error("unexpected attribute {0:?}")]
    Extra(String),
    /// An object has no value for an attribute of its type.
    #[error("attribute {0:?} is missing")]
    Missing(String),
    /// A tuple has another number of elements.
    #[error("a tuple has {found} elements instead of {expected}")]
    Length {
        /// The number of elements of the type.
        expected: usize,
        /// The number of elements.
        found: usize,
    },
    /// The value is nested too deeply.
    #[error("the value is nested more than {DEEPEST} levels deep")]
    TooDeep,
    /// The value has too many parts.
    #[error("the value has more than {MOST} parts")]
    TooMany,
}

/// Decodes a value of a type. Strings become NFC and sets are sorted. Bytes after the value are ignored.
///
/// # Errors
///
/// If the bytes are no value of this type, or the depth or the number of parts is out of range.
pub fn decode(bytes: &[u8], ty: &Type) -> Result<Value, DecodeError> {
    let mut decoder = Decoder { rest: bytes, path: Vec::new(), depth: 0, count: 0 };
    let decoded = decoder.value(ty);
    decoded.map_err(|problem| DecodeError { path: Path(decoder.path), problem })
}

struct Decoder<'a> {
    rest: &'a [u8],
    /// The part at hand, which remains after an error.
    path: Vec<Step>,
    depth: usize,
    count: usize,
}

type Decoded<T> = Result<T, DecodeProblem>;

impl<'a> Decoder<'a> {
    fn value(&mut self, ty: &Type) -> Decoded<Value> {
        self.count += 1;
        if self.count > MOST {
            return Err(DecodeProblem::TooMany);
        }
        if self.depth >= DEEPEST {
            return Err(DecodeProblem::TooDeep);
        }
        self.depth += 1;
        let value = self.marked(ty)?;
        self.depth -= 1;
        Ok(value)
    }

    fn marked(&mut self, ty: &Type) -> Decoded<Value> {
        let mark = self.byte()?;
        if mark == 0xc0 {
            return Ok(Value::Null);
        }
        // An extension of any type is an unknown value, perhaps with facts about it.
        if let Some(length) = self.extension(mark)? {
            self.take(length)?;
            return Ok(Value::Unknown);
        }
        let form = || DecodeProblem::Form { mark, ty: ty.clone() };
        match ty {
            Type::Bool => match mark {
                0xc2 => Ok(Value::Bool(false)),
                0xc3 => Ok(Value::Bool(true)),
                _ => Err(form()),
            },
            Type::Number => self.number(mark)?.map(Value::Number).ok_or_else(form),
            Type::String => self.text(mark)?.map(Value::string).ok_or_else(form),
            Type::List(element) | Type::Set(element) => {
                let length = self.array(mark)?.ok_or_else(form)?;
                // Each element has a byte at least.
                let mut elements = Vec::with_capacity(length.min(self.rest.len()).min(1024));
                for index in 0..length {
                    elements.push(self.part(Step::Index(index.try_into().unwrap_or(i64::MAX)), element)?);
                }
                Ok(if matches!(ty, Type::Set(_)) { Value::set(elements) } else { Value::List(elements) })
            }
            Type::Tuple(types) => {
                let length = self.array(mark)?.ok_or_else(form)?;
                if length != types.len() {
                    return Err(DecodeProblem::Length { expected: types.len(), found: length });
                }
                let elements = (0..).zip(types).map(|(index, ty)| self.part(Step::Index(index), ty));
                Ok(Value::Tuple(elements.collect::<Result<_, _>>()?))
            }
            Type::Map(element) => {
                let mut elements = BTreeMap::new();
                for _ in 0..self.map(mark)?.ok_or_else(form)? {
                    let key = nfc(self.key()?);
                    let value = self.part(Step::Key(key.clone()), element)?;
                    elements.insert(key, value);
                }
                Ok(Value::Map(elements))
            }
            Type::Object(types) => {
                let mut attributes = BTreeMap::new();
                for _ in 0..self.map(mark)?.ok_or_else(form)? {
                    let name = self.key()?;
                    let (name, ty) = types.get_key_value(name).ok_or_else(|| DecodeProblem::Extra(name.to_owned()))?;
                    let value = self.part(Step::Attribute(name.clone()), ty)?;
                    attributes.insert(name.clone(), value);
                }
                match types.keys().find(|name| !attributes.contains_key(*name)) {
                    None => Ok(Value::Object(attributes)),
                    Some(name) => Err(DecodeProblem::Missing(name.clone())),
                }
            }
            Type::Dynamic => {
                let length = self.array(mark)?.ok_or_else(form)?;
                if length != 2 {
                    return Err(DecodeProblem::Length { expected: 2, found: length });
                }
                let mark = self.byte()?;
                let ty = Type::parse(self.binary(mark)?.ok_or_else(form)?)?;
                let value = self.value(&ty)?;
                // A type that is itself unknown adds nothing.
                Ok(if ty == Type::Dynamic { value } else { Value::Dynamic(Box::new(Dynamic { ty, value })) })
            }
        }
    }

    fn part(&mut self, step: Step, ty: &Type) -> Decoded<Value> {
        self.path.push(step);
        let value = self.value(ty)?;
        self.path.pop();
        Ok(value)
    }

    fn key(&mut self) -> Decoded<&'a str> {
        let mark = self.byte()?;
        self.text(mark)?.ok_or(DecodeProblem::Form { mark, ty: Type::String })
    }

    fn take(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeProblem::End)?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeProblem::End)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Decoded<u8> {
        self.fixed().map(|[byte]| byte)
    }

    fn length8(&mut self) -> Decoded<usize> {
        self.byte().map(usize::from)
    }

    fn length16(&mut self) -> Decoded<usize> {
        self.fixed().map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    fn length32(&mut self) -> Decoded<usize> {
        let length = u32::from_be_bytes(self.fixed()?);
        usize::try_from(length).map_err(|_| DecodeProblem::End)
    }

    /// The length of an extension with its type, if the mark begins one.
    fn extension(&mut self, mark: u8) -> Decoded<Option<usize>> {
        Ok(Some(
            1 + match mark {
                0xd4..=0xd8 => 1 << (mark - 0xd4),
                0xc7 => self.length8()?,
                0xc8 => self.length16()?,
                0xc9 => self.length32()?,
                _ => return Ok(None),
            },
        ))
    }

    fn array(&mut self, mark: u8) -> Decoded<Option<usize>> {
        Ok(Some(match mark {
            0x90..=0x9f => usize::from(mark & 0x0f),
            0xdc => self.length16()?,
            0xdd => self.length32()?,
            _ => return Ok(None),
        }))
    }

    fn map(&mut self, mark: u8) -> Decoded<Option<usize>> {
        Ok(Some(match mark {
            0x80..=0x8f => usize::from(mark & 0x0f),
            0xde => self.length16()?,
            0xdf => self.length32()?,
            _ => return Ok(None),
        }))
    }

    /// The bytes of a string or of binary data.
    fn binary(&mut self, mark: u8) -> Decoded<Option<&'a [u8]>> {
        let length = match mark {
            0xa0..=0xbf => usize::from(mark & 0x1f),
            0xc4 | 0xd9 => self.length8()?,
            0xc5 | 0xda => self.length16()?,
            0xc6 | 0xdb => self.length32()?,
            _ => return Ok(None),
        };
        self.take(length).map(Some)
    }

    fn text(&mut self, mark: u8) -> Decoded<Option<&'a str>> {
        let Some(bytes) = self.binary(mark)? else { return Ok(None) };
        std::str::from_utf8(bytes).map(Some).map_err(|_| DecodeProblem::Text)
    }

    fn number(&mut self, mark: u8) -> Decoded<Option<Number>> {
        Ok(Some(match mark {
            0x00..=0x7f => i64::from(mark).into(),
            0xe0..=0xff => i64::from(mark.cast_signed()).into(),
            0xcc => i64::from(self.byte()?).into(),
            0xcd => i64::from(u16::from_be_bytes(self.fixed()?)).into(),
            0xce => i64::from(u32::from_be_bytes(self.fixed()?)).into(),
            0xcf => u64::from_be_bytes(self.fixed()?).into(),
            0xd0 => i64::from(i8::from_be_bytes(self.fixed()?)).into(),
            0xd1 => i64::from(i16::from_be_bytes(self.fixed()?)).into(),
            0xd2 => i64::from(i32::from_be_bytes(self.fixed()?)).into(),
            0xd3 => i64::from_be_bytes(self.fixed()?).into(),
            0xca => Number::from_f64(f32::from_be_bytes(self.fixed()?).into())?,
            0xcb => Number::from_f64(f64::from_be_bytes(self.fixed()?))?,
            _ => match self.text(mark)? {
                Some(text) => text.parse()?,
                None => return Ok(None),
            },
        }))
    }
}
