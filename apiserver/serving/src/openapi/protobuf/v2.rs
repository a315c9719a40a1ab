//! The messages of gnostic's `OpenAPIv2.proto`.

use serde_json::Value;

use super::{
    Message,
    Type::{self, Alternative, Any, Choice, Double, Each, Extensions, Flag, Integer, Named, Object, Only, Text, Texts},
};

pub(super) static DOCUMENT: Message = &[
    (1, "swagger", Text),
    (2, "info", Object(&[(1, "title", Text), (2, "version", Text)])),
    (8, "paths", Named(2, &Object(PATH_ITEM))),
    (9, "definitions", Named(1, &SCHEMA)),
    (10, "parameters", Named(1, &PARAMETER)),
    (12, "security", Each(&Named(1, &Only(1, &Texts)))),
    (13, "securityDefinitions", Named(1, &Only(2, &Object(API_KEY)))),
];

/// A definition of security that is a key in a header, the only one that there is here.
const API_KEY: Message = &[(1, "type", Text), (2, "name", Text), (3, "in", Text), (4, "description", Text)];

const PATH_ITEM: Message = &[
    (2, "get", Object(OPERATION)),
    (3, "put", Object(OPERATION)),
    (4, "post", Object(OPERATION)),
    (5, "delete", Object(OPERATION)),
    (8, "patch", Object(OPERATION)),
    (9, "parameters", PARAMETERS),
];

const OPERATION: Message = &[
    (1, "tags", Texts),
    (3, "description", Text),
    (5, "operationId", Text),
    (6, "produces", Texts),
    (7, "consumes", Texts),
    (8, "parameters", PARAMETERS),
    (9, "responses", Named(1, &Only(1, &Object(RESPONSE)))),
    (10, "schemes", Texts),
    (13, "", Extensions),
];

const RESPONSE: Message = &[(1, "description", Text), (2, "schema", Only(1, &SCHEMA))];

const PARAMETERS: Type = Each(&Choice(|parameter| match parameter["$ref"] {
    Value::Null => &Only(1, &PARAMETER),
    _ => &Only(2, &Object(&[(1, "$ref", Text)])),
}));

const PARAMETER: Type = Choice(|parameter| match parameter["in"].as_str() {
    Some("body") => &Only(1, &Object(BODY_PARAMETER)),
    Some("path") => &Only(2, &Only(4, &Object(PATH_PARAMETER))),
    _ => &Only(2, &Only(3, &Object(QUERY_PARAMETER))),
});

const BODY_PARAMETER: Message =
    &[(2, "name", Text), (3, "in", Text), (4, "required", Flag), (5, "schema", Choice(|_| &SCHEMA))];

const PATH_PARAMETER: Message = &[
    (1, "required", Flag),
    (2, "in", Text),
    (3, "description", Text),
    (4, "name", Text),
    (5, "type", Text),
    (19, "uniqueItems", Flag),
];

/// A query parameter may also be empty, which shifts what follows.
const QUERY_PARAMETER: Message = &[
    (1, "required", Flag),
    (2, "in", Text),
    (3, "description", Text),
    (4, "name", Text),
    (6, "type", Text),
    (20, "uniqueItems", Flag),
];

static ONE_SCHEMA: Type = Only(1, &SCHEMA);

static SCHEMA: Type = Object(&[
    (1, "$ref", Text),
    (2, "format", Text),
    (4, "description", Text),
    (13, "pattern", Text),
    (5, "default", Any),
    (6, "multipleOf", Double),
    (7, "maximum", Double),
    (9, "minimum", Double),
    (8, "exclusiveMaximum", Flag),
    (10, "exclusiveMinimum", Flag),
    (16, "uniqueItems", Flag),
    (11, "maxLength", Integer),
    (12, "minLength", Integer),
    (14, "maxItems", Integer),
    (15, "minItems", Integer),
    (17, "maxProperties", Integer),
    (18, "minProperties", Integer),
    (19, "required", Texts),
    (20, "enum", Each(&Any)),
    (
        21,
        "additionalProperties",
        Choice(|allowed| match allowed {
            Value::Bool(_) => &Only(2, &Alternative),
            _ => &ONE_SCHEMA,
        }),
    ),
    (22, "type", Only(1, &Text)),
    (23, "items", Only(1, &SCHEMA)),
    (25, "properties", Named(1, &SCHEMA)),
    (31, "", Extensions),
]);
