//! Proposed states and encodings of Terraform 1.11.4 itself, for the resources of our own providers.
//!
//! Each line of `tests/data/proposed.txt` has a provider, a case and, in msgpack as hexadecimal digits, the prior state,
//! the configuration and the proposed state. Terraform sent them to the provider, which recorded them
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
    for (name, least) in [("frame", 40), ("legacy", 30)] {
        let Some(provider) = support::start_unconfigured(name).await else { return };
        let schema = &provider.schemas().resources[&format!("{name}_thing")];
        let ty = schema.block.implied_type();
        let mut count = 0;
        for line in RECORDED.lines() {
            let mut fields = line.split(' ');
            if fields.next() != Some(name) {
                continue;
            }
            let case = fields.next().unwrap();
            let values: Vec<Vec<u8>> = fields.map(bytes).collect();
            let decoded: Vec<Value> = values.iter().map(|it| decode(it, &ty).unwrap()).collect();
            let [prior, config, proposed] = &decoded[..] else { panic!("{line}") };
            let found = proposed_new_state(schema, prior, config);
            assert_eq!(&found, proposed, "{name} {case}: prior {prior:?}, config {config:?}");
            for (value, bytes) in decoded.iter().zip(&values) {
                let encoded = encode(value, &ty).unwrap();
                // Terraform sorts sets of objects by a key of its own, and says more about some unknown values.
                if case != "unknown" && !case.starts_with("set") && case != "blocks" {
                    assert_eq!(encoded, *bytes, "{name} {case}: {value:?}");
                }
                assert_eq!(decode(&encoded, &ty).unwrap(), *value);
            }
            count += 1;
        }
        assert!(count >= least, "{count} of {name}");
    }
}
