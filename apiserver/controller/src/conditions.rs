//! Writes the conditions of an object's status, as `meta.SetStatusCondition` of `k8s.io/apimachinery` does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets a condition; the transition time moves only when the status does.
///
/// Returns whether anything changed, so that a controller writes only then.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
) -> bool {
    let status = if status { "True" } else { "False" };
    set_condition_to(conditions, type_, status, reason, message, generation)
}

/// The same for a condition that may be `Unknown`.
pub fn set_condition_to(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    generation: Option<i64>,
) -> bool {
    let now = Time(jiff::Timestamp::now());
    let mut next = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: now,
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        None => {
            conditions.push(next);
            true
        }
        Some(current) => {
            if current.status == next.status {
                next.last_transition_time = current.last_transition_time.clone();
            }
            let changed = *current != next;
            *current = next;
            changed
        }
    }
}
