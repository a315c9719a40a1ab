//! Bad input: each is refused with the resource, the field and the remedy before anything is touched.

use serde_json::{Value, json};
use stoa_e2e::Standalone;
use stoa_e2e::fixture::condition;

use crate::harness::{Bed, STACK, id, resource};

#[test]
fn bad_input_is_refused_before_any_change() {
    let server = Standalone::shared();
    let providers = [("random", "3.6.0")];
    let bed = Bed::new(&*server, &providers);
    let organization = &bed.organization;
    let lock = bed.mirror.lock(&providers);
    let good = resource("random_pet", "name", &json!({}));
    let with = |kind: &str, attributes: Value| json!([good.clone(), resource(kind, "a", &attributes)]);
    for (resources, told) in [
        (with("random_password", json!({"length": "long"})), &["length", "number"][..]),
        (with("random_password", json!({"length": 8, "color": "red"})), &["color"]),
        (with("random_passwort", json!({})), &["random_passwort"]),
        (with("aws_instance", json!({})), &["hashicorp/aws", "lock"]),
    ] {
        bed.commit(&resources);
        let message = organization.fail(STACK, "Preview", "");
        let about = resources[1]["id"].as_str().unwrap();
        assert!(message.contains(about) && told.iter().all(|text| message.contains(text)), "{message}");
    }
    assert_eq!(organization.recorded(STACK), (0, 0));

    // Another executable than the lock has.
    bed.commit(&json!([good]));
    bed.use_lock(&wrong_checksum(&lock), "");
    let message = organization.fail(STACK, "Preview", "");
    assert!(message.contains("checksum"), "{message}");
    bed.use_lock(&lock, "");
    organization.succeed(STACK, "Apply", "");
    assert_eq!(bed.resource(&id("random_pet", "name"))["status"]["phase"], "Applied");

    // An import of an object that does not exist.
    let mut missing = resource("random_integer", "a", &json!({"min": 1, "max": 2}));
    missing["extensions"]["kusionstack.io/import-id"] = "no".into();
    bed.commit(&json!([good, missing]));
    let run = organization.ended(&organization.start(STACK, "Preview", ""), std::time::Duration::from_secs(60));
    assert_eq!(run["status"]["phase"], "Failed", "{run:#}");
    let told = condition(&run, "Failed")["message"].as_str().unwrap().to_owned();
    assert!(told.contains(&id("random_integer", "a")), "{told}");
    organization.succeed(STACK, "Destroy", "");
}

/// The lock with a checksum of something else.
fn wrong_checksum(lock: &str) -> String {
    let start = lock.find("h1:").unwrap() + 3;
    let end = start + lock[start..].find('"').unwrap();
    format!("{}{}{}", &lock[..start], "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", &lock[end..])
}
