# The PTX device in a module of the core, for tests on an NVIDIA GPU.
function(mference_ptx target)
  foreach(source bind buffer driver gpu library queue times)
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${source}.cpp)
  endforeach()
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  target_compile_definitions(${target} PRIVATE MFERENCE_PTX)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
endfunction()
