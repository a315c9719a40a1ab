//! Prints the definitions of all kinds as CustomResourceDefinitions, for a cluster that is to know the kinds without a Stoa behind
//! it: a list in JSON, as `kubectl create --filename=-` takes it.

use std::io;

use serde_json::json;

fn main() -> Result<(), serde_json::Error> {
    let items: Vec<_> = stoa_kinds::kinds().map(|kind| (kind.crd)()).collect();
    serde_json::to_writer(io::stdout(), &json!({"apiVersion": "v1", "kind": "List", "items": items}))
}
