//! `delivery.stoa.dev`: the kinds that record what Stoa does.

use crate::{kind::Group, package_operation, promotion, release, resource, run, workflow};

pub(crate) static GROUP: Group = Group {
    priority: 880,
    owner: None,
    kinds: &[&run::KIND, &workflow::KIND, &release::KIND, &resource::KIND, &package_operation::KIND, &promotion::KIND],
};
