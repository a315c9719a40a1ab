//! Parts of messages that several calls share.

use std::time::{Duration, SystemTime};

use crate::generated::tfplugin6 as proto;
use crate::value::{Path, Step};

use super::call::{Call, CallError};

/// The abilities of this client: write-only values, and no deferred changes.
pub(super) fn client_capabilities() -> proto::ClientCapabilities {
    proto::ClientCapabilities { deferral_allowed: false, write_only_attributes_allowed: true }
}

/// Rejects an answer without facts, which the request does not permit.
///
/// # Errors
///
/// The answer is deferred.
pub(super) fn refuse_deferral(call: Call, object: &str, deferred: Option<proto::Deferred>) -> Result<(), CallError> {
    use proto::deferred::Reason;
    let Some(deferred) = deferred else { return Ok(()) };
    let reason = match deferred.reason() {
        Reason::ResourceConfigUnknown => "a part of the configuration is unknown",
        Reason::ProviderConfigUnknown => "the configuration of the provider is unknown",
        Reason::AbsentPrereq => "something that it needs does not exist",
        Reason::Unknown => "of an unknown reason",
    };
    Err(CallError::Deferred { call, object: object.to_owned(), reason })
}

/// The path in a message. A step of an unknown form ends it.
pub(super) fn path(message: proto::AttributePath) -> Path {
    use proto::attribute_path::step::Selector;
    let steps = message.steps.into_iter().map_while(|step| {
        Some(match step.selector? {
            Selector::AttributeName(name) => Step::Attribute(name),
            Selector::ElementKeyString(key) => Step::Key(key),
            Selector::ElementKeyInt(index) => Step::Index(index),
        })
    });
    Path(steps.collect())
}

/// The time in a message, if it is in range.
pub(super) fn time(message: prost_types::Timestamp) -> Option<SystemTime> {
    let nanoseconds = u32::try_from(message.nanos).ok()?;
    let since = Duration::new(u64::try_from(message.seconds).ok()?, nanoseconds);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::tfplugin5;
    use prost::Message as _;

    #[test]
    fn paths_end_at_steps_of_unknown_form() {
        use proto::attribute_path::{Step, step::Selector};
        let step = |selector| Step { selector };
        let steps = vec![
            step(Some(Selector::AttributeName("a".to_owned()))),
            step(Some(Selector::ElementKeyInt(2))),
            step(Some(Selector::ElementKeyString("k".to_owned()))),
            step(None),
            step(Some(Selector::AttributeName("b".to_owned()))),
        ];
        assert_eq!(path(proto::AttributePath { steps }).to_string(), r#"a[2]["k"]"#);
    }

    #[test]
    fn deferred_answers_are_refused() {
        use proto::{Deferred, deferred::Reason};
        refuse_deferral(Call::ReadResource, "a_b", None).unwrap();
        let deferred = Some(Deferred { reason: Reason::AbsentPrereq.into() });
        let error = refuse_deferral(Call::PlanResourceChange, "a_b", deferred).unwrap_err();
        assert!(error.to_string().contains("PlanResourceChange of a_b because something that it needs"), "{error}");
    }

    #[test]
    fn other_messages_have_the_same_form_in_both_protocols() {
        let sent = tfplugin5::plan_resource_change::Response {
            planned_state: Some(tfplugin5::DynamicValue { msgpack: vec![0xc0].into(), ..Default::default() }),
            planned_private: vec![1, 2].into(),
            legacy_type_system: true,
            ..Default::default()
        };
        let read = proto::plan_resource_change::Response::decode(&sent.encode_to_vec()[..]).unwrap();
        assert_eq!(read.planned_state.unwrap().msgpack[..], [0xc0]);
        assert!(read.legacy_type_system && read.planned_private[..] == [1, 2]);
    }
}
