//! Case `same-port-two-protocols`.
//!
//! Reports: kubernetes/kubernetes#39188, kubernetes/kubernetes#105610.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Case;

#[test]
fn ports_are_told_apart_by_number_and_protocol() {
    let case = Case::new("same-port-two-protocols");
    let service = || case.kubectl().get(&["service/dns", "--namespace", "protocols"]);
    let ports = |service: &Value| -> BTreeSet<(i64, String)> {
        let port = |port: &Value| (port["port"].as_i64().unwrap(), port["protocol"].as_str().unwrap().to_owned());
        service["spec"]["ports"].as_array().unwrap().iter().map(port).collect()
    };
    case.apply("both");
    case.assert_settled();
    let first = service();

    let planned = case.preview("tcp");
    let log = case.document(&planned, "log");
    assert!(log.contains("5454") && !log.contains("9153"), "{log}");
    case.apply("tcp");
    case.assert_settled();
    case.apply("again");
    case.assert_settled();
    let last = service();
    let expected = [(53, "SCTP"), (53, "TCP"), (53, "UDP"), (9153, "TCP")];
    assert_eq!(ports(&last), expected.map(|(port, protocol)| (port, protocol.to_owned())).into());
    for field in ["/metadata/uid", "/spec/clusterIP"] {
        assert_eq!(last.pointer(field), first.pointer(field));
    }
    case.destroy();
}
