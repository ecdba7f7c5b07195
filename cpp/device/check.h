// What every device demands of an operation before it runs: shapes that agree and views that hold
// them. Each check raises DeviceError naming the field.
#pragma once

#include "device/ops.h"

namespace mference {

void check(const EmbedRows& op);
void check(const NormQkv& op);
void check(const QkvEpilogue& op);
void check(const Attention& op);
void check(const Project& op);
void check(const PostAttentionRouter& op);
void check(const SharedExpert& op);
void check(const RoutedExperts& op);
void check(const Zero& op);
void check(const LayerTail& op);
void check(const HeadArgmax& op);
void check(const HeadLogits& op);
void check(const TopCandidates& op);

// The first position that row `row` of an attention may see.
int first_position(const Attention& op, int row);

// One matrix of a routed expert, inside its blob.
Affine expert_matrix(const View& blob, const ExpertShape::Part& part, int rows, int cols);

}  // namespace mference
