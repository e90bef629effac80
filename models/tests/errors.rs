//! What a user can get wrong is said in words.

use vdnn_models::{ModelError, Options, build, find, models};

fn message(name: &str, options: &Options) -> String {
    build(name, options).expect_err("the settings are wrong").to_string()
}

#[test]
fn an_unknown_name_gets_the_nearest() {
    for (typo, nearest) in
        [("resnet5O", "resnet50"), ("vgg61", "vgg16"), ("densnet121", "densenet121"), ("aleksnet", "alexnet")]
    {
        let error = find(typo).err().expect("a typo");
        assert!(matches!(&error, ModelError::Unknown { nearest: found, .. } if found == nearest), "{error}");
    }
}

#[test]
fn members_of_families() {
    for good in ["vgg-16", "vgg-21", "vgg-1016", "resnet-cifar-8", "resnet-cifar-1202", "resnet-47", "resnet-1922"] {
        assert_eq!(find(good).unwrap().name, good);
    }
    for bad in [
        "vgg-17",
        "vgg-11",
        "vgg-99999999999",
        "resnet-cifar-9",
        "resnet-cifar-2",
        "resnet-cifar-999998",
        "resnet-44",
        "resnet-100",
    ] {
        assert!(matches!(find(bad).err(), Some(ModelError::Depth { .. })), "{bad}");
    }
}

#[test]
fn images_too_small_name_the_layer() {
    let small = |size| Options { image_size: Some(size), ..Options::default() };
    let error = message("vgg16", &small(16));
    assert!(error.contains("features.30") && error.contains("16x16") && error.contains("does not fit"), "{error}");
    let error = message("alexnet", &small(32));
    assert!(error.contains("features.") && error.contains("use larger images"), "{error}");
    assert!(message("overfeat-fast", &small(64)).contains("features."));
}

#[test]
fn nothing_is_refused_by_name() {
    for (setting, options) in [
        ("batch size", Options { batch_size: 0, ..Options::default() }),
        ("image size", Options { image_size: Some(0), ..Options::default() }),
        ("channels", Options { channels: Some(0), ..Options::default() }),
        ("classes", Options { classes: Some(0), ..Options::default() }),
    ] {
        let error = message("resnet18", &options);
        assert!(error.contains(setting) && error.contains("found 0"), "{error}");
    }
}

/// Sizes beyond 64 bits are refused, for every network and every setting, and never wrap.
#[test]
fn absurd_sizes_are_refused() {
    for spec in models() {
        for huge in [1 << 40, 1 << 50, u64::MAX / 4, u64::MAX] {
            let default = Options::default();
            for options in [
                Options { batch_size: huge, ..default.clone() },
                Options { image_size: Some(huge), ..default.clone() },
                Options { channels: Some(huge), ..default.clone() },
                Options { classes: Some(huge), ..default.clone() },
            ] {
                let built = spec.build(&options);
                let total =
                    built.map(|net| net.graph().values().iter().map(|v| u128::from(v.ty.bytes())).sum::<u128>());
                assert!(total.is_err() || total.is_ok_and(|total| total < 1 << 63), "{} {huge}", spec.name);
            }
        }
    }
    assert!(message("vgg16", &Options { batch_size: 1 << 50, ..Options::default() }).contains("smaller batch"));
}

#[test]
fn wrong_dropout_names_the_layer() {
    for p in [1.0, -0.1, f64::NAN] {
        let error = message("vgg16", &Options { dropout: Some(p), ..Options::default() });
        assert!(error.contains("classifier.2") && error.contains("[0, 1)"), "{error}");
    }
}
