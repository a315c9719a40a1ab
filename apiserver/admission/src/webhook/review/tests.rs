use super::*;

/// The outcome of an answer to the review `u` of a validating webhook.
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

#[test]
fn client_rejects_review_of_other_version_or_kind() {
    let unlike = |own: &str, got: &str| {
        format!(
            "received invalid webhook response: expected webhook response of admission.k8s.io/{own}, \
             Kind=AdmissionReview, got {got}"
        )
    };
    let allowed = || ALLOWED.to_owned();
    for (said, v1, v1beta1) in [
        (
            r#""apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "#,
            allowed(),
            unlike("v1beta1", "admission.k8s.io/v1, Kind=AdmissionReview"),
        ),
        (
            r#""apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "#,
            unlike("v1", "admission.k8s.io/v1beta1, Kind=AdmissionReview"),
            allowed(),
        ),
        ("", unlike("v1", "/, Kind="), allowed()),
        (r#""kind": "AdmissionReview", "#, unlike("v1", "/, Kind=AdmissionReview"), allowed()),
        (r#""kind": "Other", "#, unlike("v1", "/, Kind=Other"), unlike("v1beta1", "/, Kind=Other")),
        (r#""apiVersion": 7, "#, unlike("v1", "/, Kind="), allowed()),
    ] {
        let body = review(said);
        assert_eq!(outcome(ReviewVersion::V1, &body), v1, "{body}");
        assert_eq!(outcome(ReviewVersion::V1Beta1, &body), v1beta1, "{body}");
    }
}

#[test]
fn answer_that_is_not_json_is_yaml() {
    let yaml = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse:\n  uid: u\n  allowed: true\n";
    let absent = "received invalid webhook response: webhook response was absent";
    for (body, expected) in [
        (yaml, ALLOWED),
        ("a: b", absent),
        ("null", absent),
        (" ", absent),
        ("<html>404</html>", "failed to call webhook: the answer is not an object"),
        ("a: b: c", "failed to call webhook: yaml: mapping values are not allowed in this context"),
        (" {\"a\":}", "failed to call webhook: invalid character '}' looking for beginning of value"),
    ] {
        assert_eq!(outcome(ReviewVersion::V1, body), expected, "{body}");
    }
}

#[test]
fn response_with_a_wrong_type_is_rejected() {
    let with = |response: &str| {
        format!(r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {response}}}"#)
    };
    for response in [
        "7",
        r#"{"uid": 7}"#,
        r#"{"allowed": "true"}"#,
        r#"{"status": 7}"#,
        r#"{"patch": 7}"#,
        r#"{"patchType": 7}"#,
        r#"{"auditAnnotations": []}"#,
        r#"{"auditAnnotations": {"a": 7}}"#,
        r#"{"warnings": [7]}"#,
    ] {
        let said = outcome(ReviewVersion::V1, &with(response));
        assert!(said.starts_with("failed to call webhook: response: invalid type: "), "{response}: {said}");
    }
    let corrupt = outcome(ReviewVersion::V1, &with(r#"{"uid": "u", "patch": "!!"}"#));
    assert_eq!(corrupt, "received invalid webhook response: validating webhook may not return response.patch");
    let mutating = decode(
        ReviewVersion::V1,
        "u",
        true,
        with(r#"{"uid": "u", "patch": "!!", "patchType": "JSONPatch"}"#).as_bytes(),
    );
    assert_eq!(mutating.unwrap_err(), "failed to call webhook: illegal base64 data at input byte 0");
    let nulls = with(r#"{"uid": "u", "allowed": null, "warnings": null, "auditAnnotations": null}"#);
    let answer = decode(ReviewVersion::V1, "u", false, nulls.as_bytes()).unwrap();
    assert!(!answer.allowed && answer.warnings.is_empty() && answer.audit_annotations.is_empty());
}
