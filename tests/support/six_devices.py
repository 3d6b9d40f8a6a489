"""The six devices and four widths of the routing experiment, whose figures are known."""

from slimscale.simulate.bounds.fleet import Fleet, RequestClass

CLASSES = (RequestClass(slo_seconds=0.1, share=0.3), RequestClass(slo_seconds=0.3, share=0.7))


def six_devices(*, noise: float = 0.0) -> Fleet:
    return Fleet(
        base_seconds=(0.006, 0.008, 0.008, 0.012, 0.003, 0.015),
        row_seconds=(0.002, 0.005, 0.005, 0.012, 0.045, 0.024),
        dynamic_watts=(200.0, 120.0, 120.0, 45.0, 65.0, 12.0),
        idle_watts=(50.0, 30.0, 30.0, 10.0, 20.0, 3.0),
        accuracy=(0.703, 0.735, 0.755, 0.765),
        flops_ratio=(0.07, 0.27, 0.56, 1.0),
        noise=noise,
    )
