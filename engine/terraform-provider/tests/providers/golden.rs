//! Proposed states and encodings of Terraform 1.11.4 itself, for the resource of our own provider.
//!
//! Each line of `tests/data/proposed.txt` has a case and, in msgpack as hexadecimal digits, the prior state, the
//! configuration and the proposed state. Terraform sent them to the provider `frame`, which recorded them
//! (`TF_LOG_SDK_PROTO_DATA_DIR`). A changed schema of the provider needs a new recording.

use stoa_terraform_provider::msgpack::{decode, encode};
use stoa_terraform_provider::proposed::proposed_new_state;
use stoa_terraform_provider::value::Value;

use crate::support;

const RECORDED: &str = include_str!("../data/proposed.txt");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[tokio::test]
async fn proposed_states_and_bytes_are_those_of_terraform() {
    let Some(provider) = support::start_unconfigured("frame").await else { return };
    let schema = &provider.schemas().resources["frame_thing"];
    let ty = schema.block.implied_type();
    let mut count = 0;
    for line in RECORDED.lines() {
        let (name, values) = line.split_once(' ').unwrap();
        let values: Vec<Vec<u8>> = values.split(' ').map(bytes).collect();
        let decoded: Vec<Value> = values.iter().map(|it| decode(it, &ty).unwrap()).collect();
        let [prior, config, proposed] = &decoded[..] else { panic!("{line}") };
        let found = proposed_new_state(schema, prior, config);
        assert_eq!(&found, proposed, "{name}: prior {prior:?}, config {config:?}");
        for (value, bytes) in decoded.iter().zip(&values) {
            let encoded = encode(value, &ty).unwrap();
            // Terraform sorts sets of objects by a key of its own, and says more about some unknown values.
            if name != "unknown" && !name.starts_with("set") && name != "blocks" {
                assert_eq!(encoded, *bytes, "{name}: {value:?}");
            }
            assert_eq!(decode(&encoded, &ty).unwrap(), *value);
        }
        count += 1;
    }
    assert!(count > 40);
}
