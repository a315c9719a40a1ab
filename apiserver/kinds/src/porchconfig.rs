//! `config.porch.kpt.dev`: the configuration of packages, by the names of Porch.

use crate::{kind::Group, package_variant, package_variant_set, repository};

pub(crate) static GROUP: Group = Group {
    priority: 990,
    owner: None,
    kinds: &[&repository::KIND, &package_variant::KIND, &package_variant_set::KIND],
};
