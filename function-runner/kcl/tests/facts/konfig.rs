//! AppConfigurations in the layout of Konfig.

use crate::support::Expected::{Json, Wrong};
use crate::support::{Case, check, source};

const MODEL: &str =
    "schema AppConfiguration:\n    workload: any\n    accessories?: {str:any}\n    labels?: {str:str}\n";
const SERVICE: &str = "schema Service:\n    replicas: int = 1\n    image?: str\n    env?: {str:str}\n";
const BASE: &str = "import kam\nimport service\nshop: kam.AppConfiguration {\n    workload: service.Service {\n        \
                    replicas: 1\n        image: \"<no value>\"\n        env: {Z: \"1\", A: \"2\"}\n    }\n}\n";
const STACK: &str = "import kam\nimport service\nshop: kam.AppConfiguration {\n    workload: service.Service {\n        \
                     replicas = 2\n        image = \"shop:1\"\n    }\n}\n";
const FILES: &[(&str, &str)] =
    &[("shop/base/base.k", BASE), ("shop/prod/main.k", STACK), ("kam/kam.k", MODEL), ("service/service.k", SERVICE)];

const KONFIG: Case = Case {
    files: FILES,
    packages: &[("kam", "kam"), ("service", "service")],
    settings: |it| (it.disable_none, it.include_schema_type_path) = (true, true),
    ..crate::support::CASE
};

#[test]
fn base_and_stack_both_take_part() {
    check(&[
        Case {
            name: "base, then stack",
            entries: &["shop/base/base.k", "shop/prod/main.k"],
            expected: Json(
                r#"{"shop": {"workload": {"replicas": 2, "image": "shop:1", "env": {"Z": "1", "A": "2"}, "_type": "service.Service"}, "_type": "kam.AppConfiguration"}}"#,
            ),
            ..KONFIG
        },
        Case {
            name: "stack, then base",
            entries: &["shop/prod/main.k", "shop/base/base.k"],
            expected: Wrong(
                "EvaluationError",
                "service/service.k:2:1",
                "conflicting values on the attribute 'replicas' between : 2 and 1",
            ),
            ..KONFIG
        },
        Case {
            name: "base alone",
            entries: &["shop/base/base.k"],
            expected: Wrong("NoValue", "shop/base/base.k:6:0", r#"shop.workload.image is "<no value>""#),
            ..KONFIG
        },
        Case {
            name: "stack alone",
            entries: &["shop/prod/main.k"],
            expected: Json(
                r#"{"shop": {"workload": {"replicas": 2, "image": "shop:1", "_type": "service.Service"}, "_type": "kam.AppConfiguration"}}"#,
            ),
            ..KONFIG
        },
        source("no types", &[("main.k", "schema S:\n    a: int = 1\nx = S {}\n")], Json(r#"{"x": {"a": 1}}"#)),
    ]);
}
