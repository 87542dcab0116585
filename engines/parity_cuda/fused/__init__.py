"""One row as few launches, under ``@fuse=on``.

A second form of the forward beside the op-by-op one, which stays as it is: it moves and replaces
values, takes more than one row, and runs under ``@fuse=off``. The bits are the same. What a
launch leaves out is time between ops, never a value: each field of ``parity.families`` lies in its
own buffer of the pool, under the name that the op-by-op layer gives it, until the step has ended.

Layers. ``rows`` is ``parity_cuda.rows.Rows`` of one row, ``norm`` the weights (hidden,) f32 of the
norm before the layer, x and ores (1, hidden) f32. Each makes that norm and adds its residual, and
shows all its fields (``rows.show``, after the launch that made the value; in the order of a dump)::

    attention_layer.attention_layer(rows, number, norm, weights, x, parts, freq) -> ores
    gdn_layer.gdn_layer(rows, number, norm, weights, x, parts) -> ores
    moe_layer.moe_layer(rows, number, norm, weights, ores) -> x
    dense_layer.dense_layer(rows, number, norm, weights, ores) -> x

and a module of a layer says with ``knows(weights, variants)`` whether it can do these weights under
this mask; where it cannot, the decoder takes the op-by-op layer. The buffers that a layer returns
are the pool's ``ores`` and ``x``.

Launchers, free functions over ``parity_cuda.ops.Ops``, outputs first::

    project.project(ops, x, outs, variants, *, norm=None, act=None, total=None)
    heads.heads_int8 / heads_f32(ops, ...)
    experts.route / gate_up / down(ops, ...)
    delta.*(ops, ...)

Kernels are launched with ``overlap=True``: they wait for the launch before them (``overlap.cuh``)
before they touch anything but weights.
"""
