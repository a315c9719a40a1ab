//! Untracked fields: values that a lost call may have set in an object, and that no record has.

use crate::state::StateResource;

/// Whether an object may have fields, possibly sensitive ones, from a call whose result is not recorded. That is the case when
/// `is_marked` (it has our owner annotation) and either `is_open` (a call has no result) or only its identity is recorded.
pub fn may_be_in<'r>(is_marked: bool, is_open: bool, records: impl IntoIterator<Item = &'r StateResource>) -> bool {
    is_marked && (is_open || records.into_iter().any(StateResource::is_only_found))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn unmarked_or_recorded_object_has_no_untracked_fields() {
        let found = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        let mut applied = found.clone();
        applied.attributes.insert("data".to_owned(), Map::new().into());
        assert!(may_be_in(true, false, [&applied, &found]) && may_be_in(true, true, [&applied]));
        assert!(!may_be_in(true, false, [&applied]) && !may_be_in(false, true, [&found]));
    }
}
