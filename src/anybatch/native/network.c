/* Encoders and linear heads, forward and backward. */
#include "network.h"

#include "matmul.h"
#include "transpose.h"

#define SIDE 3 /* of the convolution's kernel */
#define TAPS (SIDE * SIDE)
#define BORDER (SIDE - 1)
#define PASSES 3 /* over the weights: forward, and backward to the inputs and to the weights */
#define NORM_EPSILON 1e-5      /* torch's */
#define USUAL_CHANNELS 16      /* of the convolution: loops over them are compiled for this number */

static int positions(const Encoder *e) { return (e->height - BORDER) * (e->width - BORDER); }

static int convolved(const Encoder *e) {
  return e->planes ? positions(e) * e->convolution.linear.outputs : 0;
}

/* Numbers kept per sample and layer: outputs and, with a norm, its normalized inputs and its scale. */
static int64_t kept_by(const Layer *l, int64_t outputs) { return l->norm_weight ? 2 * outputs + 1 : outputs; }

int64_t kept_of(const Encoder *e) {
  int64_t sum = e->planes ? kept_by(&e->convolution, convolved(e)) : 0;
  for (int k = 0; k < e->layers; k++) sum += kept_by(&e->layer[k], e->layer[k].linear.outputs);
  return sum;
}

int64_t widest(const Encoder *e) {
  int64_t most = convolved(e);
  for (int k = 0; k < e->layers; k++) most = larger(most, e->layer[k].linear.outputs);
  return most;
}

/* Outputs of the convolution are computed with a border, so that each 1 of an observation has all TAPS outputs. */

static int bordered_columns(const Encoder *e) { return e->width + BORDER; }

static int bordered(const Encoder *e) {
  return (e->height + BORDER) * bordered_columns(e) * e->convolution.linear.outputs;
}

/* A few inputs do not fill a vector. */
static int has_few_inputs(const Linear *l) { return l->inputs < l->outputs && l->inputs % LANES; }

int64_t linear_scratch(const Linear *l) { return has_few_inputs(l) ? (int64_t)l->inputs * l->outputs : 0; }

int64_t scratch_of(const Encoder *e) {
  int64_t most = e->planes ? (int64_t)e->convolution.linear.outputs * (e->planes * TAPS + 1) + bordered(e) : 0;
  for (int k = 0; k < e->layers; k++) most = larger(most, linear_scratch(&e->layer[k].linear));
  return most;
}

int64_t operations_of(const Encoder *e) {
  int64_t sum = 0;
  for (int k = 0; k < e->layers; k++) sum += (int64_t)e->layer[k].linear.inputs * e->layer[k].linear.outputs;
  return (e->planes ? sum + convolved(e) : sum) * PASSES;
}

/* Numbers per block of samples whose sums become the gradients of the norm, and of the convolution. */
static int64_t norm_sums(const Layer *l, int64_t width) { return l->norm_weight ? 2 * width : 0; }

static int64_t convolution_sums(const Encoder *e) {
  return (int64_t)e->convolution.linear.outputs * (1 + e->planes * TAPS);
}

int64_t sums_of(const Encoder *e, int n) {
  int64_t sum = e->planes ? norm_sums(&e->convolution, convolved(e)) + convolution_sums(e) : 0;
  for (int k = 0; k < e->layers; k++) sum += norm_sums(&e->layer[k], e->layer[k].linear.outputs);
  return sum * blocks_of(n);
}

void add_sums(int blocks, int64_t width, const real *sums, Range columns, real *total) {
  for (int block = 0; block < blocks; block++)
    for (int64_t j = columns.start; j < columns.end; j++) total[j] += sums[block * width + j];
}

void linear(const Linear *l, int n, const real *x, real *y) {
  set_products(n, l->outputs, l->inputs, x, l->weight, l->bias, y);
}

/* Of few inputs the transposed gradient is computed, whose rows are as long as the outputs. */
static void transposed_linear_gradient(const Linear *l, int n, const real *x, const real *d_y, real *scratch) {
  const Range mine = share_of(l->outputs, PANEL);
  const int64_t width = length(mine);
  memset(scratch, 0, sizeof(real) * l->inputs * width);
  add_transposed_product(l->inputs, width, n, x, l->inputs, d_y + mine.start, l->outputs, scratch, width);
  for (int64_t o = 0; o < width; o++)
    for (int k = 0; k < l->inputs; k++) l->d_weight[(mine.start + o) * l->inputs + k] += scratch[k * width + o];
}

int64_t products_room(const Encoder *e, const Linear *head) {
  int64_t outputs = head->outputs;
  for (int k = 0; k < e->layers; k++) outputs += e->layer[k].linear.outputs;
  return FORMED_SAMPLES * outputs;
}

/* Whether the gradient of a matrix is left as a product. */
static int forms_product(const Products *products, const Linear *l) {
  return products && (int64_t)l->inputs * l->outputs >= FEWEST_WEIGHTS && l->inputs % LANES == 0;
}

/* Keeps them in the order of their places. */
static void keep_product(Products *products, const Linear *l, int n, const real *x, const real *d_y) {
  memcpy(products->room, d_y, sizeof(real) * n * l->outputs);
  int k = products->count++;
  for (; k > 0 && products->product[k - 1].place > l->d_weight; k--) products->product[k] = products->product[k - 1];
  products->product[k] = (Product){l->d_weight, l->inputs, l->outputs, n, x, products->room};
  products->room += (int64_t)n * l->outputs;
}

void linear_gradient(const Linear *l, int n, const real *x, const real *d_y, real *scratch, Products *products) {
  const Range outputs = share_of(l->outputs, LANES), inputs = share_of(l->inputs, PANEL);
  for (int64_t i = 0; i < n; i++)
    for (int64_t o = outputs.start; o < outputs.end; o++) l->d_bias[o] += d_y[i * l->outputs + o];
  if (forms_product(products, l))
    keep_product(products, l, n, x, d_y);
  else if (has_few_inputs(l))
    transposed_linear_gradient(l, n, x, d_y, scratch);
  else
    add_transposed_product(l->outputs, length(inputs), n, d_y, l->outputs, x + inputs.start, l->inputs,
                           l->d_weight + inputs.start, l->inputs);
}

void linear_input_gradient(const Linear *l, int n, const real *d_y, real *d_x) {
  add_product(n, l->inputs, l->outputs, d_y, l->outputs, l->weight, l->inputs, d_x, l->inputs);
}

/* Layer norm and activation of y[n, width], in place; `normalized` [n, width] and `scale` [n] are kept. A norm before
   a relu is one pass with it: the outputs of a convolution are too many for the first-level cache. */
static void activate(const Layer *l, int n, int width, real *y, real *normalized, real *scale) {
  const int relu = l->relu;
  const int64_t count = (int64_t)n * width;
  for (int64_t i = 0; l->norm_weight && i < n; i++) {
    real *row = y + i * width, *kept = normalized + i * width, mean = 0, variance = 0;
    for (int j = 0; j < width; j++) mean += row[j];
    mean /= width;
    for (int j = 0; j < width; j++) variance += (row[j] - mean) * (row[j] - mean);
    const real inverse = 1 / sqrt((double)variance / width + NORM_EPSILON);
    scale[i] = inverse;
    for (int j = 0; j < width; j++) {
      const real here = (row[j] - mean) * inverse, shifted = here * l->norm_weight[j] + l->norm_bias[j];
      kept[j] = here;
      row[j] = relu && shifted < 0 ? 0 : shifted;
    }
  }
  if (!relu)
    for (int64_t i = 0; i < count; i++) y[i] = hyperbolic_tangent(y[i]);
  else if (!l->norm_weight)
    for (int64_t i = 0; i < count; i++) y[i] = y[i] < 0 ? 0 : y[i];
}

/* Turns d = d loss / d output of these rows into the gradient before norm and activation. The gradients of a norm are
   added up per block in `sums`, [blocks, 2, width]: of its bias and its weight. */
static void activate_gradient(const Layer *l, int n, Range rows, int width, const real *y, const real *normalized,
                              const real *scale, real *d, real *sums) {
  if (l->relu)
    for (int64_t i = rows.start * width; i < rows.end * width; i++) d[i] = y[i] > 0 ? d[i] : 0;
  else
    for (int64_t i = rows.start * width; i < rows.end * width; i++) d[i] *= 1 - y[i] * y[i];
  if (!l->norm_weight) return;
  for (int64_t i = rows.start; i < rows.end; i++) {
    real *row = d + i * width, mean = 0, projection = 0;
    real *d_shift = sums + block_of(i, n) * norm_sums(l, width), *d_gain = d_shift + width;
    const real *kept = normalized + i * width, inverse = scale[i];
    if (i == block_start(i, n)) memset(d_shift, 0, sizeof(real) * norm_sums(l, width));
    for (int j = 0; j < width; j++) {
      d_shift[j] += row[j];
      d_gain[j] += row[j] * kept[j];
      row[j] *= l->norm_weight[j];
      mean += row[j];
      projection += row[j] * kept[j];
    }
    mean /= width;
    projection /= width;
    for (int j = 0; j < width; j++) row[j] = inverse * (row[j] - mean - kept[j] * projection);
  }
}

/* Adds this member's columns of the sums of blocks to the gradients of a norm. */
static void norm_gradient(const Layer *l, int n, int width, const real *sums) {
  if (!l->norm_weight) return;
  const Range mine = share_of(width, LANES);
  add_sums(blocks_of(n), norm_sums(l, width), sums, mine, l->d_norm_bias);
  add_sums(blocks_of(n), norm_sums(l, width), sums + width, mine, l->d_norm_weight);
}

/* weight [channels, taps, planes] as [planes, taps, channels]. */
static void order_taps(const Encoder *e, const real *weight, real *ordered) {
  const int channels = e->convolution.linear.outputs;
  for (int o = 0; o < channels; o++)
    for (int tap = 0; tap < TAPS; tap++)
      for (int c = 0; c < e->planes; c++)
        ordered[(c * TAPS + tap) * channels + o] = weight[(o * TAPS + tap) * e->planes + c];
}

/* Where the outputs of a row begin in the image with a border. */
static real *inner_row(const Encoder *e, const int channels, real *image, int row) {
  return image + ((row + BORDER) * bordered_columns(e) + BORDER) * channels;
}

/* Removes the first nonzero byte from a word, and returns its place. */
INLINE int take_byte(uint64_t *word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  const int byte = __builtin_clzll(*word) / 8;
  *word &= ~(0xff00000000000000u >> 8 * byte);
#else
  const int byte = __builtin_ctzll(*word) / 8;
  *word &= ~((uint64_t)0xff << 8 * byte);
#endif
  return byte;
}

/* x[count] += y[count] */
INLINE void add_numbers(const int count, real *x, const real *y) {
  int i = 0;
  for (; i + LANES <= count; i += LANES) *(vec *)(x + i) += *(const vec *)(y + i);
  for (; i < count; i++) x[i] += y[i];
}

/* A 1 whose outputs end at `last`: adds the weights of its taps to them or, backward, their gradients to the taps'. */
INLINE void over_taps(const int channels, int columns, real *last, real *taps, const int backward) {
  for (int row = 0; row < SIDE; row++)
    for (int column = 0; column < SIDE; column++) {
      real *output = last - (row * columns + column) * channels, *weights = taps + (row * SIDE + column) * channels;
      add_numbers(channels, backward ? weights : output, backward ? output : weights);
    }
}

/* Every 1 in the planes of an observation. Planes are nearly empty, so this is little work. */
INLINE void over_ones(const Encoder *e, const int channels, const uint8_t *obs, real *image, real *taps,
                      const int backward) {
  const int columns = bordered_columns(e), cells = e->height * e->width;
  for (int c = 0; c < e->planes; c++, obs += cells, taps += TAPS * channels)
    for (int start = 0; start < cells; start += 8) {
      uint64_t word = 0;
      memcpy(&word, obs + start, cells - start < 8 ? cells - start : 8);
      while (word) {
        const int cell = start + take_byte(&word), y = cell / e->width, x = cell - y * e->width;
        over_taps(channels, columns, inner_row(e, channels, image, y) + x * channels, taps, backward);
      }
    }
}

INLINE void convolve_channels(const Encoder *e, const int channels, int n, const uint8_t *obs, real *y, real *scratch) {
  const Linear *l = &e->convolution.linear;
  const int width = convolved(e), rows = e->height - BORDER, columns = e->width - BORDER;
  real *taps = scratch, *image = scratch + (int64_t)channels * e->planes * TAPS;
  order_taps(e, l->weight, taps);
  for (int i = 0; i < n; i++, obs += e->planes * e->height * e->width, y += width) {
    for (int row = 0; row < rows; row++)
      for (int p = 0; p < columns; p++)
        memcpy(inner_row(e, channels, image, row) + p * channels, l->bias, channels * sizeof(real));
    over_ones(e, channels, obs, image, taps, 0);
    for (int row = 0; row < rows; row++) {
      const real *from = inner_row(e, channels, image, row);
      if (e->channels_first)
        transpose(columns, channels, from, channels, y + row * columns, rows * columns);
      else
        memcpy(y + row * columns * channels, from, columns * channels * sizeof(real));
    }
  }
}

static void convolve(const Encoder *e, int n, const uint8_t *obs, real *y, real *scratch) {
  const int channels = e->convolution.linear.outputs;
  if (channels == USUAL_CHANNELS)
    convolve_channels(e, USUAL_CHANNELS, n, obs, y, scratch);
  else
    convolve_channels(e, channels, n, obs, y, scratch);
}

/* The sums of a block of samples: bias [channels], taps [planes, taps, channels]. */
INLINE void convolve_gradient_channels(const Encoder *e, const int channels, Range rows, const uint8_t *obs,
                                       const real *d_y, real *bias, real *image) {
  const int width = convolved(e), height = e->height - BORDER, columns = e->width - BORDER;
  real *taps = bias + channels;
  memset(bias, 0, sizeof(real) * convolution_sums(e));
  for (int64_t i = rows.start; i < rows.end; i++) {
    const real *from = d_y + i * width;
    for (int row = 0; row < height; row++) {
      real *to = inner_row(e, channels, image, row);
      if (e->channels_first)
        transpose(channels, columns, from + row * columns, height * columns, to, channels);
      else
        memcpy(to, from + row * columns * channels, columns * channels * sizeof(real));
      for (int p = 0; p < columns; p++) add_numbers(channels, bias, to + p * channels);
    }
    over_ones(e, channels, obs + i * e->planes * e->height * e->width, image, taps, 1);
  }
}

/* The sums of all blocks among these rows. */
static void convolve_gradient(const Encoder *e, int n, Range rows, const uint8_t *obs, const real *d_y, real *sums,
                              real *scratch) {
  const int channels = e->convolution.linear.outputs;
  memset(scratch, 0, sizeof(real) * bordered(e));
  for (int64_t start = rows.start; start < rows.end; start = block_end(start, n)) {
    const Range block = {start, block_end(start, n)};
    real *bias = sums + block_of(start, n) * convolution_sums(e);
    if (channels == USUAL_CHANNELS)
      convolve_gradient_channels(e, USUAL_CHANNELS, block, obs, d_y, bias, scratch);
    else
      convolve_gradient_channels(e, channels, block, obs, d_y, bias, scratch);
  }
}

/* Adds this member's planes of the sums of blocks to the gradients of the convolution; the first adds the bias. */
static void convolution_gradient(const Encoder *e, int n, const real *sums) {
  const Linear *l = &e->convolution.linear;
  const int channels = l->outputs, blocks = blocks_of(n);
  const Range planes = share_of(e->planes, 1);
  if (member() == 0) add_sums(blocks, convolution_sums(e), sums, (Range){0, channels}, l->d_bias);
  for (int block = 0; block < blocks; block++) {
    const real *taps = sums + block * convolution_sums(e) + channels;
    for (int64_t c = planes.start; c < planes.end; c++)
      for (int tap = 0; tap < TAPS; tap++)
        for (int o = 0; o < channels; o++)
          l->d_weight[(o * TAPS + tap) * e->planes + c] += taps[(c * TAPS + tap) * channels + o];
  }
}

const real *encode(const Encoder *e, int n, Range rows, const void *obs, real *kept, real *scratch) {
  const real *x = obs;
  const int64_t count = length(rows), all = n;
  for (int k = e->planes ? -1 : 0; k < e->layers; k++) {
    const Layer *l = k < 0 ? &e->convolution : &e->layer[k];
    const int width = k < 0 ? convolved(e) : l->linear.outputs;
    real *y = kept + rows.start * width;
    if (k < 0)
      convolve(e, count, (const uint8_t *)obs + rows.start * e->planes * e->height * e->width, y, scratch);
    else
      linear(&l->linear, count, x + rows.start * l->linear.inputs, y);
    activate(l, count, width, y, y + all * width, kept + 2 * all * width + rows.start);
    x = kept;
    kept += all * kept_by(l, width);
  }
  return x;
}

void encode_gradient(const Encoder *e, int n, Range rows, const void *obs, const real *kept, real *d, real *other,
                     real *sums, real *scratch, Products *products) {
  const int64_t count = length(rows), all = n;
  kept += all * kept_of(e);
  for (int k = e->layers - 1; k >= (e->planes ? -1 : 0); k--) {
    const Layer *l = k < 0 ? &e->convolution : &e->layer[k];
    const int width = k < 0 ? convolved(e) : l->linear.outputs;
    real *beyond = sums + blocks_of(n) * norm_sums(l, width);
    kept -= all * kept_by(l, width);
    activate_gradient(l, n, rows, width, kept, kept + all * width, kept + 2 * all * width, d, sums);
    if (k < 0) convolve_gradient(e, n, rows, obs, d, beyond, scratch);
    wait_for_all();
    norm_gradient(l, n, width, sums);
    if (k < 0) {
      convolution_gradient(e, n, beyond);
      return;
    }
    const int is_first = k == 0 && !e->planes;
    const Layer *lower = k > 0 ? &e->layer[k - 1] : &e->convolution;
    const real *below = is_first ? obs : kept - all * kept_by(lower, l->linear.inputs);
    linear_gradient(&l->linear, n, below, d, scratch, products);
    if (is_first) return;
    real *d_below = other + rows.start * l->linear.inputs;
    memset(d_below, 0, sizeof(real) * count * l->linear.inputs);
    linear_input_gradient(&l->linear, count, d + rows.start * width, d_below);
    other = d;
    d = d_below - rows.start * l->linear.inputs;
    sums = beyond;
  }
}

typedef struct {
  const Encoder *encoder;
  const Linear *head;
  int n;
  const char *obs;
  real *y, *work;
} Evaluation;

#define MOST_IN_PART (SAMPLES_AT_ONCE + BLOCK_SAMPLES) /* so that no part is shorter than a block */

static int64_t part_numbers(const Encoder *e) { return MOST_IN_PART * kept_of(e) + scratch_of(e); }

static int64_t obs_bytes(const Encoder *e);

/* This member's share, in parts whose numbers stay in the cache. */
static void evaluate(void *task) {
  const Evaluation *v = task;
  const Range mine = share_of(v->n, BLOCK_SAMPLES);
  real *kept = v->work + member() * part_numbers(v->encoder);
  for (int64_t start = mine.start, end; start < mine.end; start = end) {
    end = mine.end - start < MOST_IN_PART ? mine.end : start + SAMPLES_AT_ONCE;
    const Range rows = {0, end - start};
    const real *features = encode(v->encoder, end - start, rows, v->obs + start * obs_bytes(v->encoder), kept,
                                  kept + MOST_IN_PART * kept_of(v->encoder));
    linear(v->head, end - start, features, v->y + start * v->head->outputs);
  }
}

int64_t outputs_workspace(const Encoder *e, int32_t threads) { return threads * part_numbers(e); }

/* y[n, outputs] of a head on an encoder. */
void outputs(const Encoder *e, const Linear *head, int32_t n, const void *obs, real *y, real *work, int32_t threads) {
  Evaluation task = {e, head, n, obs, y, work};
  as_team(useful_members(threads, n, operations_of(e) / PASSES), evaluate, &task);
}

/* Bytes of one observation. */
static int64_t obs_bytes(const Encoder *e) {
  return e->planes ? (int64_t)e->planes * e->height * e->width : (int64_t)sizeof(real) * e->layer[0].linear.inputs;
}

void gather(const Encoder *e, const void *all, const int64_t *index, Range rows, void *obs) {
  const int64_t bytes = obs_bytes(e);
  for (int64_t i = rows.start; i < rows.end; i++)
    memcpy((char *)obs + i * bytes, (const char *)all + index[i] * bytes, bytes);
}

int64_t obs_room(const Encoder *e, int64_t n) { return (n * obs_bytes(e) + sizeof(real) - 1) / sizeof(real); }
