//! `config.stoa.dev`: the kinds that application teams write.

use crate::{kind::Group, organization, project, source, stack};

pub(crate) static GROUP: Group =
    Group { priority: 900, owner: None, kinds: &[&organization::KIND, &project::KIND, &stack::KIND, &source::KIND] };
