//! Regions of Amazon Web Services.

use super::MappingWarning;
use crate::edit_distance::closest_name;

/// Regions that existed when this version was built.
const KNOWN: [&str; 37] = [
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eusc-de-east-1",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
];

/// Returns a warning about a region that is not known. It may be newer than this version.
pub fn region_warning(region: &str) -> Option<MappingWarning> {
    if KNOWN.contains(&region) {
        return None;
    }
    let meant = closest_name(region, KNOWN);
    let meant = meant.map_or_else(String::new, |meant| format!(" Did you mean {meant}?"));
    Some(MappingWarning {
        field: "cloudRegion",
        message: format!("AWS has no region \"{region}\" that this version knows.{meant}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_region_that_was_probably_meant() {
        assert_eq!(region_warning("eu-central-1"), None);
        let message = |region| region_warning(region).map(|warning| warning.message);
        assert_eq!(
            message("eu-cental-1").as_deref(),
            Some(
                "AWS has no region \"eu-cental-1\" that this version knows. Did you mean eu-central-1?"
            )
        );
        assert_eq!(
            message("moon").as_deref(),
            Some("AWS has no region \"moon\" that this version knows.")
        );
    }
}
