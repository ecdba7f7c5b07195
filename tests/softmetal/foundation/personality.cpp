// For GNU's runtime clang names libobjc's personality in every frame of Objective-C++, and that one
// knows nothing of C++: no C++ exception would be caught. Nothing here throws Objective-C objects,
// so the name, hidden in each binary, leads to the personality of C++.
#include <unwind.h>

extern "C" _Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class,
                                                    _Unwind_Exception*, _Unwind_Context*);

extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code
__gnu_objc_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class type,
                          _Unwind_Exception* exception, _Unwind_Context* context) {
  return __gxx_personality_v0(version, actions, type, exception, context);
}
