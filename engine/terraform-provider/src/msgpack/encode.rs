//! The strict encoder.

use crate::value::{Dynamic, Number, Path, Step, Type, Value};

/// A value that does not have the form of the type that the schema gives it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: the value does not have the form of {ty}", if path.is_root() { "value".to_owned() } else { path.to_string() })]
pub struct EncodeError {
    /// The part of the value.
    pub path: Path,
    /// The type that the part should have.
    pub ty: Type,
}

/// Encodes a value of a type: every attribute present, keys and sets sorted, each number in its one form.
///
/// # Errors
///
/// If the value is of another type, or text or a collection has 4 GiB.
pub fn encode(value: &Value, ty: &Type) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder { out: Vec::new(), path: Vec::new() };
    encoder.value(value, ty)?;
    Ok(encoder.out)
}

struct Encoder {
    out: Vec<u8>,
    path: Vec<Step>,
}

impl Encoder {
    fn value(&mut self, value: &Value, ty: &Type) -> Result<(), EncodeError> {
        match (value, ty) {
            (Value::Null, _) => self.out.push(0xc0),
            (Value::Unknown, _) => self.out.extend([0xd4, 0, 0]),
            (Value::Bool(it), Type::Bool) => self.out.push(if *it { 0xc3 } else { 0xc2 }),
            (Value::Number(it), Type::Number) => self.number(it, ty)?,
            (Value::String(it), Type::String) => self.string(it, ty)?,
            (Value::List(it), Type::List(element)) | (Value::Set(it), Type::Set(element)) => {
                self.length(it.len(), ty, [0x90, 0xdc, 0xdd])?;
                for (index, value) in (0..).zip(it) {
                    self.part(Step::Index(index), value, element)?;
                }
            }
            (Value::Map(it), Type::Map(element)) => {
                self.length(it.len(), ty, [0x80, 0xde, 0xdf])?;
                for (key, value) in it {
                    self.string(key, ty)?;
                    self.part(Step::Key(key.clone()), value, element)?;
                }
            }
            (Value::Object(it), Type::Object(types)) if it.keys().eq(types.keys()) => {
                self.length(it.len(), ty, [0x80, 0xde, 0xdf])?;
                for ((name, value), inner) in it.iter().zip(types.values()) {
                    self.string(name, ty)?;
                    self.part(Step::Attribute(name.clone()), value, inner)?;
                }
            }
            (Value::Tuple(it), Type::Tuple(types)) if it.len() == types.len() => {
                self.length(it.len(), ty, [0x90, 0xdc, 0xdd])?;
                for ((index, value), inner) in (0..).zip(it).zip(types) {
                    self.part(Step::Index(index), value, inner)?;
                }
            }
            (Value::Dynamic(it), Type::Dynamic) => {
                let Dynamic { ty: inner, value } = &**it;
                self.out.push(0x92);
                self.bytes(inner.to_string().as_bytes(), ty)?;
                self.value(value, inner)?;
            }
            _ => return Err(self.failed(ty)),
        }
        Ok(())
    }

    fn failed(&self, ty: &Type) -> EncodeError {
        EncodeError { path: Path(self.path.clone()), ty: ty.clone() }
    }

    fn part(&mut self, step: Step, value: &Value, ty: &Type) -> Result<(), EncodeError> {
        self.path.push(step);
        self.value(value, ty)?;
        self.path.pop();
        Ok(())
    }

    /// The smallest integer; else a float that is exact; else all digits as text.
    fn number(&mut self, number: &Number, ty: &Type) -> Result<(), EncodeError> {
        if let Some(integer) = number.to_i64() {
            self.integer(integer);
            return Ok(());
        }
        match number.exact_f64() {
            Some(float) if !number.is_integer() => {
                self.out.push(0xcb);
                self.out.extend(float.to_be_bytes());
                Ok(())
            }
            _ => self.string(&number.to_string(), ty),
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "each arm's range has so many bits")]
    fn integer(&mut self, integer: i64) {
        let out = &mut self.out;
        match integer {
            -32..0 => out.push(integer as i8 as u8),
            0..0x80 => out.push(integer as u8),
            0x80..0x100 => out.extend([0xcc, integer as u8]),
            0x100..0x1_0000 => {
                out.push(0xcd);
                out.extend((integer as u16).to_be_bytes());
            }
            0x1_0000..0x1_0000_0000 => {
                out.push(0xce);
                out.extend((integer as u32).to_be_bytes());
            }
            0x1_0000_0000.. => {
                out.push(0xcf);
                out.extend((integer as u64).to_be_bytes());
            }
            -0x80..-32 => out.extend([0xd0, integer as i8 as u8]),
            -0x8000..-0x80 => {
                out.push(0xd1);
                out.extend((integer as i16).to_be_bytes());
            }
            -0x8000_0000..-0x8000 => {
                out.push(0xd2);
                out.extend((integer as i32).to_be_bytes());
            }
            _ => {
                out.push(0xd3);
                out.extend(integer.to_be_bytes());
            }
        }
    }

    fn string(&mut self, text: &str, ty: &Type) -> Result<(), EncodeError> {
        match u8::try_from(text.len()) {
            Ok(length @ 0..32) => self.out.push(0xa0 | length),
            Ok(length) => self.out.extend([0xd9, length]),
            Err(_) => self.long_length(text.len(), ty, [0xda, 0xdb])?,
        }
        self.out.extend(text.as_bytes());
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8], ty: &Type) -> Result<(), EncodeError> {
        match u8::try_from(bytes.len()) {
            Ok(length) => self.out.extend([0xc4, length]),
            Err(_) => self.long_length(bytes.len(), ty, [0xc5, 0xc6])?,
        }
        self.out.extend(bytes);
        Ok(())
    }

    /// The length of a collection, with the marks for up to 15, for 16 bits and for 32 bits.
    fn length(&mut self, length: usize, ty: &Type, [short, medium, long]: [u8; 3]) -> Result<(), EncodeError> {
        match u8::try_from(length) {
            Ok(length @ 0..16) => self.out.push(short | length),
            _ => self.long_length(length, ty, [medium, long])?,
        }
        Ok(())
    }

    fn long_length(&mut self, length: usize, ty: &Type, [medium, long]: [u8; 2]) -> Result<(), EncodeError> {
        if let Ok(length) = u16::try_from(length) {
            self.out.push(medium);
            self.out.extend(length.to_be_bytes());
        } else {
            let length = u32::try_from(length).map_err(|_| self.failed(ty))?;
            self.out.push(long);
            self.out.extend(length.to_be_bytes());
        }
        Ok(())
    }
}
