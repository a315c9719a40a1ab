//! Whether an object may hold what no record tells of.

use crate::state::StateResource;

/// Whether a call of which no record tells may have set fields of an object, from sensitive values among others: it bears our mark,
/// and nothing is recorded but which it is, or a call `is_open`, of which nobody knows what came of it.
pub fn may_be_in<'r>(is_marked: bool, is_open: bool, records: impl IntoIterator<Item = &'r StateResource>) -> bool {
    is_marked && (is_open || records.into_iter().any(StateResource::is_only_found))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn what_has_no_mark_and_what_is_on_record_holds_nothing_else() {
        let found = StateResource::named_by(&"v1:ConfigMap:shop:a".into()).unwrap();
        let mut applied = found.clone();
        applied.attributes.insert("data".to_owned(), Map::new().into());
        assert!(may_be_in(true, false, [&applied, &found]) && may_be_in(true, true, [&applied]));
        assert!(!may_be_in(true, false, [&applied]) && !may_be_in(false, true, [&found]));
    }
}
