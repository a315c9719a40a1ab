//! Schemas of providers, resources, data sources and ephemeral resources.
//!
//! Start at [`Schema`] and [`Block`]. A schema gives the type of a value on the wire ([`Block::implied_type`]), and
//! knows which parts are computed, sensitive or write-only.
//!
//! Elsewhere: [`configuration`] makes a typed value of configuration, `walk` visits the attributes of a value,
//! `decode` reads the messages of both protocols.

pub mod configuration;
pub(crate) mod decode;
mod walk;

use std::collections::BTreeMap;

use crate::value::{Type, Value};

pub use self::decode::SchemaError;

/// The schema of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The version of the state, which the provider raises when the form changes.
    pub version: i64,
    /// The attributes and blocks.
    pub block: Block,
}

/// Attributes and nested blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The attributes by name.
    pub attributes: BTreeMap<String, Attribute>,
    /// The nested blocks by name.
    pub blocks: BTreeMap<String, NestedBlock>,
    /// The documentation.
    pub description: String,
    /// Whether the provider discourages its use.
    pub deprecated: bool,
}

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The type, or the attributes inside.
    pub form: AttributeForm,
    /// Whether configuration has to set it.
    pub required: bool,
    /// Whether configuration may set it.
    pub optional: bool,
    /// Whether the provider may set it.
    pub computed: bool,
    /// Whether the value is secret.
    pub sensitive: bool,
    /// Whether no plan or state ever has the value.
    pub write_only: bool,
    /// The documentation.
    pub description: String,
    /// Whether the provider discourages its use.
    pub deprecated: bool,
}

/// The type of an attribute, or its nested attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeForm {
    /// A plain type.
    Type(Type),
    /// Objects whose attributes have schemas.
    Nested(NestedAttributes),
}

/// Objects whose attributes have schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedAttributes {
    /// The arrangement of the objects. Never [`Nesting::Group`].
    pub nesting: Nesting,
    /// The attributes of each object.
    pub attributes: BTreeMap<String, Attribute>,
}

/// A nested block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedBlock {
    /// The arrangement of the blocks.
    pub nesting: Nesting,
    /// The attributes and blocks of each.
    pub block: Block,
    /// The fewest blocks.
    pub min_items: i64,
    /// The most blocks, or zero for any number.
    pub max_items: i64,
}

/// The arrangement of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// One object, or null.
    Single,
    /// One object, which is never null.
    Group,
    /// A list of objects.
    List,
    /// A set of objects.
    Set,
    /// A map to objects.
    Map,
}

impl Nesting {
    /// The type of objects in this arrangement.
    fn of(self, object: Type) -> Type {
        match self {
            Self::Single | Self::Group => object,
            Self::List => Type::list(object),
            Self::Set => Type::set(object),
            Self::Map => Type::map(object),
        }
    }
}

impl Attribute {
    /// An attribute of a type, which configuration may set.
    pub fn optional(ty: Type) -> Self {
        Self {
            form: AttributeForm::Type(ty),
            required: false,
            optional: true,
            computed: false,
            sensitive: false,
            write_only: false,
            description: String::new(),
            deprecated: false,
        }
    }

    /// An attribute of a type, which the provider sets.
    pub fn computed(ty: Type) -> Self {
        Self { optional: false, computed: true, ..Self::optional(ty) }
    }

    /// The type of the attribute's value.
    pub fn implied_type(&self) -> Type {
        match &self.form {
            AttributeForm::Type(ty) => ty.clone(),
            AttributeForm::Nested(nested) => nested.implied_type(),
        }
    }

    /// The nested attributes, if they have schemas.
    pub fn nested(&self) -> Option<&NestedAttributes> {
        match &self.form {
            AttributeForm::Type(_) => None,
            AttributeForm::Nested(nested) => Some(nested),
        }
    }
}

impl NestedAttributes {
    /// The type of all objects together.
    pub fn implied_type(&self) -> Type {
        self.nesting.of(self.object_type())
    }

    /// The type of one object.
    pub fn object_type(&self) -> Type {
        Type::object(self.attributes.iter().map(|(name, it)| (name, it.implied_type())))
    }
}

impl NestedBlock {
    /// The type of all blocks together. Lists and maps of blocks with an attribute of any type are of any type
    /// themselves, since each block may then have a type of its own.
    pub fn implied_type(&self) -> Type {
        let object = self.block.implied_type();
        match self.nesting {
            Nesting::List | Nesting::Map if object.has_dynamic() => Type::Dynamic,
            nesting => nesting.of(object),
        }
    }

    /// The value where configuration has no such block: empty, and null for a single one only.
    pub fn absent(&self) -> Value {
        let empty = match self.nesting {
            Nesting::Single => return Value::Null,
            Nesting::Group => return self.block.absent(),
            Nesting::Set => return Value::Set(Vec::new()),
            Nesting::List if self.implied_type() == Type::Dynamic => Value::Tuple(Vec::new()),
            Nesting::Map if self.implied_type() == Type::Dynamic => Value::Object(BTreeMap::new()),
            Nesting::List => return Value::List(Vec::new()),
            Nesting::Map => return Value::Map(BTreeMap::new()),
        };
        Value::dynamic(empty)
    }
}

impl Block {
    /// The type of the block's value: an object with all attributes and all blocks.
    pub fn implied_type(&self) -> Type {
        let attributes = self.attributes.iter().map(|(name, it)| (name, it.implied_type()));
        Type::object(attributes.chain(self.blocks.iter().map(|(name, it)| (name, it.implied_type()))))
    }

    /// The value with null attributes and without blocks.
    pub fn absent(&self) -> Value {
        let attributes = self.attributes.keys().map(|name| (name, Value::Null));
        Value::object(attributes.chain(self.blocks.iter().map(|(name, it)| (name, it.absent()))))
    }
}

#[cfg(test)]
pub(crate) mod tests;
