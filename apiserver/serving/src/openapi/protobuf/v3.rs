//! The messages of gnostic's `OpenAPIv3.proto`.

use serde_json::Value;

use super::{
    Message,
    Type::{self, Alternative, Any, Choice, Double, Each, Extensions, Flag, Integer, Named, Object, Only, Text, Texts},
};

pub(super) static DOCUMENT: Message = &[
    (1, "openapi", Text),
    (2, "info", Object(&[(1, "title", Text), (6, "version", Text)])),
    (4, "paths", Named(1, &Object(PATH_ITEM))),
    (5, "components", Object(&[(1, "schemas", SCHEMAS)])),
];

const PATH_ITEM: Message = &[
    (4, "get", Object(OPERATION)),
    (5, "put", Object(OPERATION)),
    (6, "post", Object(OPERATION)),
    (7, "delete", Object(OPERATION)),
    (10, "patch", Object(OPERATION)),
    (13, "parameters", PARAMETERS),
];

const OPERATION: Message = &[
    (1, "tags", Texts),
    (3, "description", Text),
    (5, "operationId", Text),
    (6, "parameters", PARAMETERS),
    (7, "requestBody", Only(1, &Object(&[(2, "content", CONTENT), (3, "required", Flag)]))),
    (8, "responses", Named(2, &Only(1, &Object(&[(1, "description", Text), (3, "content", CONTENT)])))),
    (10, "deprecated", Flag),
    (13, "", Extensions),
];

const PARAMETERS: Type = Each(&Only(1, &Object(PARAMETER)));

const PARAMETER: Message = &[
    (1, "name", Text),
    (2, "in", Text),
    (3, "description", Text),
    (4, "required", Flag),
    (10, "schema", SCHEMA_OR_REFERENCE),
];

const CONTENT: Type = Named(1, &Object(&[(1, "schema", SCHEMA_OR_REFERENCE)]));

const SCHEMAS: Type = Named(1, &SCHEMA_OR_REFERENCE);

const SCHEMA_OR_REFERENCE: Type = Choice(|schema| match schema["$ref"] {
    Value::String(_) => &Only(2, &Object(&[(1, "$ref", Text)])),
    _ => &ONE_SCHEMA,
});

static ONE_SCHEMA: Type = Only(1, &SCHEMA);

static SCHEMA: Type = Object(&[
    (1, "nullable", Flag),
    (10, "multipleOf", Double),
    (11, "maximum", Double),
    (13, "minimum", Double),
    (12, "exclusiveMaximum", Flag),
    (14, "exclusiveMinimum", Flag),
    (20, "uniqueItems", Flag),
    (15, "maxLength", Integer),
    (16, "minLength", Integer),
    (18, "maxItems", Integer),
    (19, "minItems", Integer),
    (21, "maxProperties", Integer),
    (22, "minProperties", Integer),
    (17, "pattern", Text),
    (25, "type", Text),
    (34, "description", Text),
    (35, "format", Text),
    (23, "required", Texts),
    (24, "enum", Each(&Any)),
    (26, "allOf", Each(&SCHEMA_OR_REFERENCE)),
    (27, "oneOf", Each(&SCHEMA_OR_REFERENCE)),
    (28, "anyOf", Each(&SCHEMA_OR_REFERENCE)),
    (29, "not", Choice(|_| &SCHEMA)),
    (30, "items", Only(1, &SCHEMA_OR_REFERENCE)),
    (31, "properties", SCHEMAS),
    (
        32,
        "additionalProperties",
        Choice(|allowed| match allowed {
            Value::Bool(_) => &Only(2, &Alternative),
            _ => &Only(1, &SCHEMA_OR_REFERENCE),
        }),
    ),
    // Only texts, numbers and booleans can be said here; another default is known to be, and no more.
    (
        33,
        "default",
        Choice(|default| match default {
            Value::Number(_) => &Only(1, &Double),
            Value::Bool(_) => &Only(2, &Alternative),
            _ => &Only(3, &Text),
        }),
    ),
    (36, "", Extensions),
]);
