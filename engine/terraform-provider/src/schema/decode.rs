//! The schemas in the messages of both protocols.
//!
//! An attribute has other fields in protocol 5 than in protocol 6: the same numbers mean different things. A schema of
//! protocol 5 therefore becomes one of protocol 6 first, field by field.

use crate::generated::{tfplugin5, tfplugin6};
use crate::value::{Type, TypeError};

use super::{Attribute, AttributeForm, Block, NestedAttributes, NestedBlock, Nesting, Schema};

/// How deeply blocks and attributes may be nested.
const DEEPEST: usize = 32;

/// A message that is no schema.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// An attribute has no type.
    #[error("the type of attribute {name:?} cannot be read")]
    Type {
        /// The name of the attribute.
        name: String,
        /// The reason.
        source: TypeError,
    },
    /// A block or an attribute has an arrangement that this version does not know.
    #[error("{name:?} has the nesting {nesting}, which is unknown; upgrade Stoa")]
    Nesting {
        /// The name of the block or the attribute.
        name: String,
        /// The number of the arrangement.
        nesting: i32,
    },
    /// Blocks are nested too deeply.
    #[error("a schema is nested more than {DEEPEST} levels deep")]
    TooDeep,
}

/// The schema in a message. A missing block is empty.
pub(crate) fn schema(message: tfplugin6::Schema) -> Result<Schema, SchemaError> {
    Ok(Schema { version: message.version, block: block(message.block.unwrap_or_default(), 0)? })
}

fn block(message: tfplugin6::schema::Block, depth: usize) -> Result<Block, SchemaError> {
    if depth > DEEPEST {
        return Err(SchemaError::TooDeep);
    }
    let attributes = message.attributes.into_iter().map(|it| Ok((it.name.clone(), attribute(it, depth + 1)?)));
    let blocks = message.block_types.into_iter().map(|it| Ok((it.type_name.clone(), nested_block(it, depth + 1)?)));
    Ok(Block {
        attributes: attributes.collect::<Result<_, SchemaError>>()?,
        blocks: blocks.collect::<Result<_, SchemaError>>()?,
        description: message.description,
        deprecated: message.deprecated,
    })
}

fn attribute(message: tfplugin6::schema::Attribute, depth: usize) -> Result<Attribute, SchemaError> {
    if depth > DEEPEST {
        return Err(SchemaError::TooDeep);
    }
    let form = match message.nested_type {
        Some(object) => AttributeForm::Nested(nested_attributes(&message.name, object, depth + 1)?),
        None => match Type::parse(&message.r#type) {
            Ok(ty) => AttributeForm::Type(ty),
            Err(source) => return Err(SchemaError::Type { name: message.name, source }),
        },
    };
    Ok(Attribute {
        form,
        required: message.required,
        optional: message.optional,
        computed: message.computed,
        sensitive: message.sensitive,
        write_only: message.write_only,
        description: message.description,
        deprecated: message.deprecated,
    })
}

fn nested_attributes(
    name: &str,
    message: tfplugin6::schema::Object,
    depth: usize,
) -> Result<NestedAttributes, SchemaError> {
    use tfplugin6::schema::object::NestingMode;
    let nesting = match NestingMode::try_from(message.nesting) {
        Ok(NestingMode::Single) => Nesting::Single,
        Ok(NestingMode::List) => Nesting::List,
        Ok(NestingMode::Set) => Nesting::Set,
        Ok(NestingMode::Map) => Nesting::Map,
        _ => return Err(SchemaError::Nesting { name: name.to_owned(), nesting: message.nesting }),
    };
    let attributes = message.attributes.into_iter().map(|it| Ok((it.name.clone(), attribute(it, depth)?)));
    Ok(NestedAttributes { nesting, attributes: attributes.collect::<Result<_, SchemaError>>()? })
}

fn nested_block(message: tfplugin6::schema::NestedBlock, depth: usize) -> Result<NestedBlock, SchemaError> {
    use tfplugin6::schema::nested_block::NestingMode;
    let nesting = match NestingMode::try_from(message.nesting) {
        Ok(NestingMode::Single) => Nesting::Single,
        Ok(NestingMode::Group) => Nesting::Group,
        Ok(NestingMode::List) => Nesting::List,
        Ok(NestingMode::Set) => Nesting::Set,
        Ok(NestingMode::Map) => Nesting::Map,
        _ => return Err(SchemaError::Nesting { name: message.type_name, nesting: message.nesting }),
    };
    Ok(NestedBlock {
        nesting,
        block: block(message.block.unwrap_or_default(), depth)?,
        min_items: message.min_items,
        max_items: message.max_items,
    })
}

/// A schema of protocol 5 as one of protocol 6.
pub(crate) fn of_protocol_5(message: tfplugin5::Schema) -> tfplugin6::Schema {
    tfplugin6::Schema { version: message.version, block: message.block.map(block_of_protocol_5) }
}

fn block_of_protocol_5(message: tfplugin5::schema::Block) -> tfplugin6::schema::Block {
    tfplugin6::schema::Block {
        version: message.version,
        attributes: message.attributes.into_iter().map(attribute_of_protocol_5).collect(),
        block_types: message.block_types.into_iter().map(nested_block_of_protocol_5).collect(),
        description: message.description,
        description_kind: message.description_kind,
        deprecated: message.deprecated,
        deprecation_message: message.deprecation_message,
    }
}

fn attribute_of_protocol_5(message: tfplugin5::schema::Attribute) -> tfplugin6::schema::Attribute {
    tfplugin6::schema::Attribute {
        name: message.name,
        r#type: message.r#type,
        nested_type: None,
        description: message.description,
        required: message.required,
        optional: message.optional,
        computed: message.computed,
        sensitive: message.sensitive,
        description_kind: message.description_kind,
        deprecated: message.deprecated,
        write_only: message.write_only,
        deprecation_message: message.deprecation_message,
    }
}

fn nested_block_of_protocol_5(message: tfplugin5::schema::NestedBlock) -> tfplugin6::schema::NestedBlock {
    tfplugin6::schema::NestedBlock {
        type_name: message.type_name,
        block: message.block.map(block_of_protocol_5),
        nesting: message.nesting,
        min_items: message.min_items,
        max_items: message.max_items,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn attributes_of_protocol_5_have_other_numbers() {
        let sent = tfplugin5::schema::Attribute {
            name: "password".to_owned(),
            r#type: bytes::Bytes::from_static(b"\"string\""),
            optional: true,
            write_only: true,
            deprecation_message: "old".to_owned(),
            ..Default::default()
        };
        let decoded = attribute(attribute_of_protocol_5(sent.clone()), 0).unwrap();
        assert!(decoded.write_only && decoded.optional && decoded.nested().is_none());
        // Field 10 is a bool there and a message here.
        assert!(tfplugin6::schema::Attribute::decode(&sent.encode_to_vec()[..]).is_err());
    }

    #[test]
    fn unknown_nestings_and_types_are_rejected() {
        let nested = tfplugin6::schema::NestedBlock { type_name: "rule".to_owned(), nesting: 9, ..Default::default() };
        let error = nested_block(nested, 0).unwrap_err().to_string();
        assert_eq!(error, "\"rule\" has the nesting 9, which is unknown; upgrade Stoa");
        let untyped = tfplugin6::schema::Attribute { name: "a".to_owned(), ..Default::default() };
        assert_eq!(attribute(untyped, 0).unwrap_err().to_string(), "the type of attribute \"a\" cannot be read");
    }

    #[test]
    fn depth_is_limited() {
        let mut message = tfplugin6::schema::Block::default();
        for _ in 0..40 {
            let nested = tfplugin6::schema::NestedBlock { block: Some(message), nesting: 1, ..Default::default() };
            message = tfplugin6::schema::Block { block_types: vec![nested], ..Default::default() };
        }
        assert!(matches!(block(message, 0), Err(SchemaError::TooDeep)));
    }
}
