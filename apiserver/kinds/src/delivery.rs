//! `delivery.stoa.dev`: the kinds that record what Stoa does.

use crate::{kind::Group, release, resource, run, workflow};

pub(crate) static GROUP: Group =
    Group { priority: 880, owner: None, kinds: &[&run::KIND, &workflow::KIND, &release::KIND, &resource::KIND] };
