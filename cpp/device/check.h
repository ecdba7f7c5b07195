// What every device demands of an operation before it runs: shapes that agree and views that hold
// them. Each check raises DeviceError naming the field.
#pragma once

#include "device/ops.h"

namespace mference {

inline constexpr int kMaxTaps = 8;  // of a convolution
// Dimensions of a head of the delta rule: multiples of one up to the other.
inline constexpr int kDeltaDimStep = 32;
inline constexpr int kMaxDeltaDim = 256;

void check(const EmbedRows& op);
void check(const NormProject& op);
void check(const QkvEpilogue& op);
void check(const Attention& op);
void check(const GateHeads& op);
void check(const ConvolutionTail& op);
void check(const GatedDelta& op);
void check(const Project& op);
void check(const PostAttentionRouter& op);
void check(const ResidualRouter& op);
void check(const SharedExpert& op);
void check(const LookUpSlots& op);
void check(const RoutedExperts& op);
void check(const Zero& op);
void check(const LayerTail& op);
void check(const ResidualTail& op);
void check(const HeadArgmax& op);
void check(const HeadLogits& op);
void check(const TopCandidates& op);

// The first position that row `row` of an attention may see.
int first_position(const Attention& op, int row);

// One matrix of a routed expert, inside its blob.
Affine expert_matrix(const View& blob, const ExpertShape::Part& part, int rows, int cols);

}  // namespace mference
