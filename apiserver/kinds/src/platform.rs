//! `platform.stoa.dev`: the kinds that the platform team writes.

use crate::{backend, kind::Group, module, notification_sink, rights::Role, variable_set, workspace};

pub(crate) static GROUP: Group = Group {
    priority: 890,
    owner: Some(Role::PlatformEngineer),
    kinds: &[&workspace::KIND, &backend::KIND, &notification_sink::KIND, &variable_set::KIND, &module::KIND],
};
