use super::*;

/// What is said of an answer to the review `u` of a webhook that validates.
fn outcome(version: ReviewVersion, body: &str) -> String {
    match decode(version, "u", false, body.as_bytes()) {
        Ok(answer) => format!("allowed: {}", answer.allowed),
        Err(problem) => problem,
    }
}

/// A review whose response allows the write, and says this of itself.
fn review(said: &str) -> String {
    format!(r#"{{{said}"response": {{"uid": "u", "allowed": true}}}}"#)
}

const ALLOWED: &str = "allowed: true";

/// The outcomes are those of upstream's client.
#[test]
fn client_rejects_review_of_other_version_or_kind() {
    let own = |got: &str| {
        format!(
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, \
             Kind=AdmissionReview, got {got}"
        )
    };
    let unknown = |kind: &str, version: &str| {
        format!(
            "failed to call webhook: no kind \"{kind}\" is registered for version \"{version}\" in scheme \
             \"pkg/runtime/scheme.go:111\""
        )
    };
    let unlike = |given: &str, own: &str| {
        format!("failed to call webhook: converting ({given}) to ({own}.AdmissionReview): unknown conversion")
    };
    let both = |problem: String| (problem.clone(), problem);
    let no_kind = |problem: &str| {
        both(format!(
            "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal {problem} of \
             type string"
        ))
    };
    for (said, (v1, v1beta1)) in [
        (
            r#""apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "#,
            (ALLOWED.to_owned(), unlike("v1.AdmissionReview", "v1beta1")),
        ),
        (
            r#""apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "#,
            (unlike("v1beta1.AdmissionReview", "v1"), ALLOWED.to_owned()),
        ),
        ("", (own("/, Kind="), ALLOWED.to_owned())),
        (r#""kind": "AdmissionReview", "#, (own("/, Kind=AdmissionReview"), ALLOWED.to_owned())),
        (
            r#""apiVersion": "admission.k8s.io/v1", "#,
            (own("admission.k8s.io/v1, Kind="), unlike("v1.AdmissionReview", "v1beta1")),
        ),
        (
            r#""apiVersion": "admission.k8s.io/", "kind": "AdmissionReview", "#,
            (own("admission.k8s.io/, Kind=AdmissionReview"), ALLOWED.to_owned()),
        ),
        (
            r#""APIVERSION": "admission.k8s.io/v1", "kind": "AdmissionReview", "#,
            (own("/, Kind=AdmissionReview"), unlike("v1.AdmissionReview", "v1beta1")),
        ),
        (
            r#""kind": "Other", "#,
            (unknown("Other", "admission.k8s.io/v1"), unknown("Other", "admission.k8s.io/v1beta1")),
        ),
        (
            r#""apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview", "#,
            both(unknown("AdmissionReview", "admission.k8s.io/v2")),
        ),
        (r#""apiVersion": "/v1", "kind": "AdmissionReview", "#, both(unknown("AdmissionReview", "v1"))),
        (r#""apiVersion": "example.com/v1", "kind": "Foo", "#, both(unknown("Foo", "example.com/v1"))),
        (r#""apiVersion": "v1", "kind": "Status", "#, (unlike("v1.Status", "v1"), unlike("v1.Status", "v1beta1"))),
        (
            r#""apiVersion": "admission.k8s.io/v1", "kind": "ListOptions", "#,
            (unlike("v1.ListOptions", "v1"), unlike("v1.ListOptions", "v1beta1")),
        ),
        (
            r#""apiVersion": "a/b/c", "#,
            both("failed to call webhook: unexpected GroupVersion string: a/b/c".to_owned()),
        ),
        (r#""apiVersion": 7, "#, no_kind("number into Go struct field .apiVersion")),
        (r#""kind": true, "#, no_kind("bool into Go struct field .kind")),
    ] {
        let body = review(said);
        assert_eq!(outcome(ReviewVersion::V1, &body), v1, "{body}");
        assert_eq!(outcome(ReviewVersion::V1Beta1, &body), v1beta1, "{body}");
    }
}

#[test]
fn what_is_no_json_is_yaml() {
    let yaml = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse:\n  uid: u\n  allowed: true\n";
    let absent = "received invalid webhook response: webhook response was absent";
    let text = "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string into \
                Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                \"json:\\\"kind,omitempty\\\"\" }";
    for (body, expected) in [
        (yaml, ALLOWED),
        ("a: b", absent),
        ("null", absent),
        (" ", absent),
        ("<html>404</html>", text),
        ("a: b: c", "failed to call webhook: yaml: mapping values are not allowed in this context"),
        (
            " {\"a\":}",
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character '}' looking for \
             beginning of value",
        ),
    ] {
        assert_eq!(outcome(ReviewVersion::V1, body), expected, "{body}");
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let with = |response: &str| {
        format!(r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {response}}}"#)
    };
    for (response, problem) in [
        ("7", "number into Go struct field AdmissionReview.response of type v1.AdmissionResponse"),
        (r#"{"uid": 7}"#, "number into Go struct field AdmissionResponse.response.uid of type types.UID"),
        (r#"{"allowed": "true"}"#, "string into Go struct field AdmissionResponse.response.allowed of type bool"),
        (r#"{"status": 7}"#, "number into Go struct field AdmissionResponse.response.status of type v1.Status"),
        (r#"{"patch": 7}"#, "number into Go struct field AdmissionResponse.response.patch of type []uint8"),
        (
            r#"{"patchType": 7}"#,
            "number into Go struct field AdmissionResponse.response.patchType of type v1.PatchType",
        ),
        (
            r#"{"auditAnnotations": []}"#,
            "array into Go struct field AdmissionResponse.response.auditAnnotations of type map[string]string",
        ),
        (
            r#"{"auditAnnotations": {"a": 7}}"#,
            "number into Go struct field AdmissionResponse.response.auditAnnotations of type string",
        ),
        (r#"{"warnings": [7]}"#, "number into Go struct field AdmissionResponse.response.warnings of type string"),
    ] {
        // The codec reads a review of another version before it finds that it cannot make one of this.
        for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
            let expected = format!("failed to call webhook: json: cannot unmarshal {problem}");
            assert_eq!(outcome(version, &with(response)), expected);
        }
    }
    let corrupt = outcome(ReviewVersion::V1, &with(r#"{"uid": "other", "patch": "!!"}"#));
    assert_eq!(corrupt, "failed to call webhook: illegal base64 data at input byte 0");
    let nulls = with(r#"{"uid": "u", "allowed": null, "warnings": [null, "a"], "auditAnnotations": {"k": null}}"#);
    let answer = decode(ReviewVersion::V1, "u", false, nulls.as_bytes()).unwrap();
    assert_eq!(answer.warnings, ["", "a"]);
    assert_eq!(answer.audit_annotations, BTreeMap::from([("k".to_owned(), String::new())]));
}
