//! What the Python package imports.

use super::Violation;
use crate::workspace::{Failure, files, read, root, shown};

/// What `import sbp_native` may not need.
const OPTIONAL: [&str; 2] = ["pyspark", "pyarrow"];

/// Searches every module of the package but those of its Spark part.
pub(super) fn check() -> Result<Vec<Violation>, Failure> {
    let mut violations = Vec::new();
    for path in files(&root().join("python/sbp_native"), "py")? {
        let name = shown(&path);
        if name.starts_with("python/sbp_native/spark/") {
            continue;
        }
        for (index, line) in read(&path)?.lines().enumerate() {
            if let Some(what) = judge(line) {
                violations.push(Violation {
                    rule: "L8",
                    what: format!("{name}:{}: {what}", index + 1),
                });
            }
        }
    }
    Ok(violations)
}

/// What is wrong with one line. An indented import happens later or is optional; the Spark part is never imported.
fn judge(line: &str) -> Option<String> {
    let statement = line.trim_start();
    let (keyword, rest) = statement.split_once(' ')?;
    if keyword != "import" && keyword != "from" {
        return None;
    }
    let module = rest.split([' ', ',']).next().unwrap_or_default();
    let top = module.split('.').next().unwrap_or_default();
    let immediate = statement.len() == line.len();
    if immediate && OPTIONAL.contains(&top) {
        return Some(format!("needs {top} to be imported"));
    }
    let spark_module = matches!(module, ".spark" | "sbp_native.spark");
    let inside_spark = module.starts_with(".spark.") || module.starts_with("sbp_native.spark.");
    let by_name = matches!(module, "." | "sbp_native")
        && rest
            .split_once(" import ")
            .is_some_and(|(_, names)| names.split(',').any(|name| name.trim() == "spark"));
    (spark_module || inside_spark || by_name).then(|| String::from("imports the Spark part"))
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn optional_libraries_are_found_at_the_top_only() {
        assert!(judge("import pyarrow as pa").is_some());
        assert!(judge("from pyspark.sql import DataFrame").is_some());
        assert!(judge("    import pyarrow as pa").is_none());
        assert!(judge("import pyarrow_hotfix").is_none());
        assert!(judge("# import pyarrow").is_none());
    }

    #[test]
    fn the_spark_part_is_found_anywhere() {
        assert!(judge("from .spark import configure").is_some());
        assert!(judge("    from . import spark").is_some());
        assert!(judge("import sbp_native.spark.source").is_some());
        assert!(judge("from .sparkle import x").is_none());
        assert!(judge("from ._native import Client").is_none());
    }
}
