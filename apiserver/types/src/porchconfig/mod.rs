//! `config.porch.kpt.dev`: the configuration of Porch. Names and JSON fields are those of Porch 1.5.

mod package_variant;
mod package_variant_set;
mod pipeline;
mod repository;

pub use package_variant::{
    AdoptionPolicy, Downstream, DownstreamDeletion, DownstreamTarget, InjectionPoint, InjectionSelector,
    PackageContext, PackageVariant, PackageVariantSpec, PackageVariantStatus, Upstream,
};
pub use package_variant_set::{
    DownstreamTemplate, FunctionTemplate, InjectionSelectorTemplate, MapExpr, ObjectSelector, PackageContextTemplate,
    PackageVariantSet, PackageVariantSetSpec, PackageVariantSetStatus, PackageVariantTemplate, PipelineTemplate,
    RepositoryTarget, Target,
};
pub use pipeline::{Function, Pipeline, Selector};
pub use repository::{
    GitRepository, OciRepository, Repository, RepositoryFunction, RepositorySpec, RepositoryStatus, RepositorySync,
    RepositoryType, UpstreamRepository,
};
