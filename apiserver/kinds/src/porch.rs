//! `porch.kpt.dev`: packages, by the names of Porch.

use crate::{kind::Group, package, package_function, package_resources, package_revision};

pub(crate) static GROUP: Group = Group {
    priority: 1000,
    owner: None,
    kinds: &[&package_revision::KIND, &package_resources::KIND, &package::KIND, &package_function::KIND],
};
