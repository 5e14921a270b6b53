"""llama.cpp's server, with a random model of two layers, on the port in its first argument."""

import signal
import sys
import tempfile

import gguf
import numpy
import xllamacpp

LAYERS, WIDTH, HIDDEN, HEADS, CONTEXT = 2, 64, 128, 4, 256
WORDS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def write(path):
    """Writes the model. Its vocabulary has a token for each byte."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(WORDS + BYTES)
    writer.add_token_scores([0.0] * len(WORDS + BYTES))
    kinds = gguf.TokenType
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.BYTE] * len(BYTES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    random = numpy.random.default_rng(1)

    def add(name, *shape):
        weights = random.normal(0.0, 0.05, shape) if len(shape) > 1 else numpy.ones(shape)
        writer.add_tensor(f"{name}.weight", weights.astype(numpy.float32))

    vocabulary = len(WORDS + BYTES)
    add("token_embd", vocabulary, WIDTH)
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{norm}", WIDTH)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}", WIDTH, WIDTH)
        for part in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{part}", HIDDEN, WIDTH)
        add(f"blk.{layer}.ffn_down", WIDTH, HIDDEN)
    add("output_norm", WIDTH)
    add("output", vocabulary, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


with tempfile.NamedTemporaryFile(suffix=".gguf") as model:
    write(model.name)
    params = xllamacpp.CommonParams()
    params.model.path = model.name
    params.port = int(sys.argv[1])
    params.n_ctx, params.n_parallel = 4 * CONTEXT, 4
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
signal.pause()  # until a signal ends it
